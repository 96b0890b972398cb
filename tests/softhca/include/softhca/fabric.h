// Fabrics for programs that make virtual-time worlds: a fabric file, or its text, with LIDs and routes.
// The file format is documented in config/fabrics/README.md.
#pragma once
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "softhca/image.h"

namespace softhca {

// A mistake of the user: one line that names file:line, the key, the value and what is allowed.
struct FabricError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Owns one FabricImage block. Copy image().bytes bytes from data() to place it elsewhere (it is relocatable).
class FabricBlock {
public:
    explicit FabricBlock(size_t bytes) : words_((bytes + 7) / 8) {}
    [[nodiscard]] FabricImage& image() { return *reinterpret_cast<FabricImage*>(words_.data()); }
    [[nodiscard]] const FabricImage& image() const { return *reinterpret_cast<const FabricImage*>(words_.data()); }
    [[nodiscard]] const std::byte* data() const { return reinterpret_cast<const std::byte*>(words_.data()); }
    [[nodiscard]] size_t size() const { return words_.size() * 8; }

private:
    std::vector<uint64_t> words_; // 8-byte aligned, zeroed
};

// A fabric file, or the bare name of one in $SOFTHCA_FABRICS (else config/fabrics). `ideal`: nothing costs anything.
// Routes are opensm's, from its cache if it has computed them before; crossbars need none. Throws FabricError.
FabricBlock load_fabric(const std::string& path_or_name, bool ideal = false);
// The same from text; `file` only appears in messages, its stem is the default name of the fabric.
FabricBlock parse_fabric(const std::string& text, const std::string& file);

} // namespace softhca

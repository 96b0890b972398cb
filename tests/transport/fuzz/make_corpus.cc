// Writes good messages and addresses as files below a folder: DIR/message/*, DIR/data/*, DIR/address/*.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "fuzz/data_targets.h"

namespace {

void write(const std::filesystem::path& file, const ucx_mp::fuzz::Bytes& bytes) {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
}

} // namespace

int main(int argc, char** argv) {
    using namespace ucx_mp::fuzz;
    if (argc != 2) {
        std::fprintf(stderr, "usage: %s DIR\n", argv[0]);
        return 2;
    }
    const std::filesystem::path dir = argv[1];
    int n = 0;
    for (const auto& m : sample_messages()) write(dir / "message" / std::to_string(n++), packed(m));
    for (const Bytes& b : sample_data()) write(dir / "data" / std::to_string(n++), b);
    for (unsigned i = 1; i <= ucx_mp::connect::kMaxControlAddresses; ++i)
        write(dir / "address" / std::to_string(i), packed(sample_address(i)));
    for (const bool ipv6 : {false, true})
        write(dir / "address" / (ipv6 ? "ipv6" : "ipv4"), packed(mixed_address(ipv6)));
    return 0;
}

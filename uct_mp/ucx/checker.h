// Reads and checks one value of the user's after the other. Keeps the first impossible
// one, and settings without effect. Lines show the value as typed. Private to this folder.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include "uct_mp/ucx/config.h"
#include "uct_mp/ucx/variables.h"

namespace ucx_mp::face {

[[nodiscard]] bool is_auto(const char* text);
[[nodiscard]] bool is_inf(const char* text);

// `text`: as UCX's parser has left it; null if it could not read it. A value outside its limits leaves `out` alone.
class Checker {
public:
    Checker(std::string prefix, Said& said) : prefix_(std::move(prefix)), said_(said) { said_ = {}; }

    template <class T> void count(const char* name, const char* text, unsigned long min, unsigned long max, T& out) {
        unsigned long value = 0;
        if (read_count(name, text, min, max, value)) out = static_cast<T>(value);
    }
    void bytes(const char* name, const char* text, std::size_t min, std::size_t max, unsigned& out);
    // in seconds
    void time(const char* name, const char* text, double min, double max, double& out);
    void time(const char* name, const char* text, double min, double max, Nanos& out);

    // `variable`: another one, with its prefix.
    void refuse(const std::string& variable, const char* value, const std::string& allowed);
    void fail(const char* name, const char* value, const std::string& allowed);
    // This variable has no effect; `why`: the variable that switches it off.
    void note(const char* name, const char* value, const char* why);
    // The same for those among `names`, numbers, texts and choices, that differ from their
    // defaults. `options`: where UCX's parser has written the values of `variables`.
    void note_changed(const std::vector<Variable>& variables, const void* options, const char* why,
                      std::initializer_list<const char*> names);
    [[nodiscard]] bool good() const { return said_.error.empty(); }

private:
    [[nodiscard]] bool read_count(const char* name, const char* text, unsigned long min, unsigned long max,
                                  unsigned long& out);

    std::string prefix_;
    Said& said_;
};

} // namespace ucx_mp::face

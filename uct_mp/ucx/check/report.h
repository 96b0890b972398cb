// The output of `mp_info --check`: a line per check, and what follows for the transport's features.
#pragma once

#include <map>
#include <string>

namespace ucx_mp::check {

enum class Verdict { yes, no, broken }; // no: the transport does without. broken: it relies on it

class Report {
public:
    __attribute__((format(printf, 4, 5))) void line(const char* what, Verdict verdict, const char* format, ...);
    void failed(const char* what, const std::string& why); // it could not be tried
    // A feature is on only if the answer was yes wherever it was tried.
    void feature(const char* name, bool on);
    void features() const;                                    // prints them
    [[nodiscard]] unsigned broken() const { return broken_; } // number of such lines

private:
    std::map<std::string, bool> features_;
    unsigned broken_ = 0;
};

} // namespace ucx_mp::check

#include "fabric/name_pattern.h"

#include <charconv>
#include <stdexcept>

namespace softhca {
namespace {

unsigned long number(std::string_view digits) {
    unsigned long value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (digits.empty() || error != std::errc{} || end != digits.data() + digits.size() || value > 1'000'000)
        throw std::invalid_argument("'" + std::string(digits) + "' is not a number in [...]");
    return value;
}

// "0-3,07" -> 0 1 2 3 07
std::vector<std::string> expand_ranges(std::string_view list) {
    std::vector<std::string> out;
    for (const std::string& part : split_outside_brackets(list, ',')) {
        const size_t dash = part.find('-');
        const std::string_view low = std::string_view(part).substr(0, dash);
        const std::string_view high = dash == std::string::npos ? low : std::string_view(part).substr(dash + 1);
        const unsigned long first = number(low), last = number(high);
        if (last < first) throw std::invalid_argument("'" + part + "' runs backwards");
        if (last - first >= kMaxNames) throw std::invalid_argument("'" + part + "' is too long");
        for (unsigned long n = first; n <= last; ++n) {
            std::string digits = std::to_string(n);
            if (low.size() > 1 && low.front() == '0' && digits.size() < low.size())
                digits.insert(0, low.size() - digits.size(), '0');
            out.push_back(std::move(digits));
        }
    }
    return out;
}

} // namespace

std::vector<std::string> split_outside_brackets(std::string_view text, char separator) {
    std::vector<std::string> parts(1);
    int depth = 0;
    for (const char c : text) {
        depth += (c == '[') - (c == ']');
        if (c == separator && depth == 0)
            parts.emplace_back();
        else
            parts.back() += c;
    }
    return parts;
}

std::vector<std::string> expand_names(std::string_view pattern) {
    std::vector<std::string> all;
    for (const std::string& item : split_outside_brackets(pattern, ',')) {
        std::string_view rest = item;
        while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
        while (!rest.empty() && rest.back() == ' ') rest.remove_suffix(1);
        if (rest.empty()) throw std::invalid_argument("a name is empty");
        std::vector<std::string> names(1);
        while (!rest.empty()) {
            const size_t open = rest.find('[');
            for (std::string& n : names) n += rest.substr(0, open);
            if (rest.substr(0, open).find(']') != std::string_view::npos)
                throw std::invalid_argument("a ] without its [");
            if (open == std::string_view::npos) break;
            const size_t close = rest.find(']', open);
            if (close == std::string_view::npos) throw std::invalid_argument("a [ without its ]");
            const auto numbers = expand_ranges(rest.substr(open + 1, close - open - 1));
            if (names.size() * numbers.size() > kMaxNames) throw std::invalid_argument("more than 65536 names");
            std::vector<std::string> product;
            product.reserve(names.size() * numbers.size());
            for (const std::string& n : names)
                for (const std::string& d : numbers) product.push_back(n + d);
            names = std::move(product);
            rest.remove_prefix(close + 1);
        }
        all.insert(all.end(), names.begin(), names.end());
        if (all.size() > kMaxNames) throw std::invalid_argument("more than 65536 names");
    }
    return all;
}

} // namespace softhca

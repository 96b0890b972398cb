#include "uct_mp/ucx/abi/parsers.h"

// The functions alone; the structures that are declared beside them differ between versions.
extern "C" {
#include <ucs/config/parser.h>
}

namespace ucx_mp::face::abi {

namespace {

constexpr ParserFunctions kBoolean{ucs_config_sscanf_bool, ucs_config_sprintf_bool, ucs_config_clone_int,
                                   ucs_config_release_nop, ucs_config_help_generic, "<y|n>"};
constexpr ParserFunctions kTernary{ucs_config_sscanf_ternary, ucs_config_sprintf_ternary_auto, ucs_config_clone_int,
                                   ucs_config_release_nop,    ucs_config_help_generic,         "<yes|no|try>"};
// Numbers and times are kept as they were typed, so that a complaint shows that; read_options()
// reads them. Here UCX's own parser `read` is asked only whether it can make a T of it.
template <auto read, class T> int keep_text(const char* text, void* to, const void*) {
    T ignored;
    *static_cast<char**>(to) = nullptr;
    return read(text, &ignored, nullptr) == 1 ? ucs_config_sscanf_string(text, to, nullptr) : 0;
}
template <auto read, class T> constexpr ParserFunctions kept(const char* syntax) {
    return {keep_text<read, T>,        ucs_config_sprintf_string, ucs_config_clone_string,
            ucs_config_release_string, ucs_config_help_generic,   syntax};
}
constexpr ParserFunctions kCount = kept<ucs_config_sscanf_uint, unsigned>("unsigned integer");
constexpr ParserFunctions kBytes = kept<ucs_config_sscanf_memunits, std::size_t>("memory units: <number>[b|kb|mb|gb]");
constexpr ParserFunctions kAmount =
    kept<ucs_config_sscanf_ulunits, unsigned long>("unsigned long: <number>, \"inf\", or \"auto\"");
constexpr ParserFunctions kTime = kept<ucs_config_sscanf_time, double>("time value: <number>[m|s|ms|us|ns]");
constexpr ParserFunctions kText{ucs_config_sscanf_string,  ucs_config_sprintf_string, ucs_config_clone_string,
                                ucs_config_release_string, ucs_config_help_generic,   "string"};
constexpr ParserFunctions kArray{ucs_config_sscanf_array,  ucs_config_sprintf_array, ucs_config_clone_array,
                                 ucs_config_release_array, ucs_config_help_array,    nullptr};
constexpr ParserFunctions kChoice{ucs_config_sscanf_enum, ucs_config_sprintf_enum, ucs_config_clone_uint,
                                  ucs_config_release_nop, ucs_config_help_enum,    nullptr};
constexpr ParserFunctions kTable{ucs_config_sscanf_table, nullptr, ucs_config_clone_table, ucs_config_release_table,
                                 ucs_config_help_table,   nullptr};

ParserFunctions with(ParserFunctions functions, const void* arg) {
    functions.arg = arg;
    return functions;
}

} // namespace

ParserFunctions parser_of(const Variable& variable) {
    switch (variable.syntax) {
    case Syntax::boolean:
        return kBoolean;
    case Syntax::ternary:
        return kTernary;
    case Syntax::count:
        return kCount;
    case Syntax::bytes:
        return kBytes;
    case Syntax::amount:
        return kAmount;
    case Syntax::time:
        return kTime;
    case Syntax::text:
        return kText;
    case Syntax::texts:
        return with(kArray, &ucs_config_array_string);
    case Syntax::choice:
        return with(kChoice, variable.choices);
    }
    __builtin_unreachable();
}

bool read_bytes(const char* text, std::size_t& out) { return ucs_config_sscanf_memunits(text, &out, nullptr) == 1; }
bool read_time(const char* text, double& out) { return ucs_config_sscanf_time(text, &out, nullptr) == 1; }

ParserFunctions parser_of_table(const void* rows) { return with(kTable, rows); }

} // namespace ucx_mp::face::abi

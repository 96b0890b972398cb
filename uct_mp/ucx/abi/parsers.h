// UCX's functions for values of variables. Their signatures are the same
// in every version; the structure that joins them (V1_NN::Parser) is not.
#pragma once

#include "uct_mp/ucx/abi/base.h"
#include "uct_mp/ucx/variables.h"

namespace ucx_mp::face::abi {

struct ParserFunctions {
    int (*read)(const char* text, void* to, const void* arg);
    int (*write)(char* text, std::size_t max, const void* from, const void* arg);
    ucs_status_t (*clone)(const void* from, void* to, const void* arg);
    void (*release)(void* value, const void* arg);
    void (*help)(char* text, std::size_t max, const void* arg);
    const void* arg;
};

[[nodiscard]] ParserFunctions parser_of(const Variable& variable);
[[nodiscard]] ParserFunctions parser_of_table(const void* rows);

// Values with units, as UCX reads them: "8k"; "10ms", in seconds. False: there is none.
[[nodiscard]] bool read_bytes(const char* text, std::size_t& out);
[[nodiscard]] bool read_time(const char* text, double& out);

} // namespace ucx_mp::face::abi

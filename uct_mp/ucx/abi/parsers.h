// UCX's functions for values of variables. Their signatures are the same in every version; how they are put together
// (V1_NN::Parser) is not.
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

// Of a variable; lists of numbers have no `arg` yet, which depends on the layout.
[[nodiscard]] ParserFunctions parser_of(const Variable& variable);
[[nodiscard]] ParserFunctions parser_of_table(const void* rows);

} // namespace ucx_mp::face::abi

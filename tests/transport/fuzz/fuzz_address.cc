#include "fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    ucx_mp::fuzz::try_address({data, size});
    return 0;
}

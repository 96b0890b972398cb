#include "fuzz/data_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    ucx_mp::fuzz::try_data({data, size});
    return 0;
}

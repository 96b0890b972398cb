#include "uct_mp/ucx/who.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string_view>

namespace ucx_mp::face {

namespace {

// The first that is set.
std::string_view value_of(std::initializer_list<const char*> variables) {
    for (const char* variable : variables)
        if (const char* const value = std::getenv(variable); value && *value) return value;
    return {};
}

int number_of(std::initializer_list<const char*> variables, int otherwise) {
    const std::string_view text = value_of(variables);
    int number = otherwise;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size() && number >= 0 ? number : otherwise;
}

Who look() {
    Who who;
    char host[256] = {};
    if (gethostname(host, sizeof host - 1) == 0) who.host.assign(host, std::strcspn(host, "."));
    who.job = value_of({"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "PMIX_NAMESPACE", "PMI_JOBID"});
    who.program = program_invocation_short_name;
    who.rank = number_of({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}, -1);
    who.size = number_of({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}, 0);
    return who;
}

} // namespace

// Never destroyed: the async thread may run until the very end of the process.
const Who& who() {
    static const Who* const only = new Who(look());
    return *only;
}

} // namespace ucx_mp::face

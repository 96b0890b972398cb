#include "kernel.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace ucx_mp::sim {

const std::vector<Kernel>& kernels() {
    static const std::vector<Kernel> all = [] {
        std::vector<Kernel> out;
        for (const auto& family : {exchanges(), one_sided_many(), traces(), task_pools(), applications()})
            out.insert(out.end(), family.begin(), family.end());
        return out;
    }();
    return all;
}

std::string kernel_names() {
    std::string out = "one of";
    for (const Kernel& kernel : kernels()) out += std::string("\n  ") + kernel.name + ": " + kernel.help;
    return out;
}

const Kernel& find_kernel(const std::string& name) {
    std::string known;
    for (const Kernel& kernel : kernels()) {
        if (name == kernel.name) return kernel;
        known += (known.empty() ? "" : ", ") + std::string(kernel.name);
    }
    throw std::runtime_error("--kernel " + name + " is none of " + known);
}

std::uint64_t messages_of(const Job& job) {
    const auto counts = [](const Step& s) {
        return s.kind == Step::Kind::send || s.kind == Step::Kind::get || s.kind == Step::Kind::put ||
               s.kind == Step::Kind::add;
    };
    std::uint64_t n = 0;
    for (const Steps& steps : job) n += static_cast<std::uint64_t>(std::count_if(steps.begin(), steps.end(), counts));
    return n;
}

std::uint64_t bytes_of(const Job& job) {
    std::uint64_t n = 0;
    for (const Steps& steps : job)
        for (const Step& s : steps)
            if (s.kind == Step::Kind::send || s.kind == Step::Kind::get || s.kind == Step::Kind::put) n += s.amount;
    return n;
}

void exchange(Job& job, unsigned a, unsigned b, std::uint64_t bytes) {
    for (const auto& [x, y] : {std::pair{a, b}, std::pair{b, a}}) {
        send(job, x, y, bytes);
        complete(job, x);
        wait(job, x, y);
    }
}

void barrier(Job& job) {
    const auto n = static_cast<unsigned>(job.size());
    for (unsigned distance = 1; distance < n; distance *= 2)
        for (unsigned i = 0; i < n; ++i) {
            job[i].push_back({Step::Kind::sync, (i + distance) % n, 0});
            job[i].push_back({Step::Kind::meet, (i + n - distance) % n, 1});
        }
}

Zipf::Zipf(unsigned n, double skew) {
    double sum = 0;
    for (unsigned i = 0; i < n; ++i) upto_.push_back(sum += std::pow(i + 1.0, -skew));
    for (double& x : upto_) x /= sum;
}

unsigned Zipf::operator()(std::mt19937_64& random) const {
    const double x = static_cast<double>(random() >> 11) * 0x1p-53;
    const auto at = std::upper_bound(upto_.begin(), upto_.end() - 1, x);
    return static_cast<unsigned>(at - upto_.begin());
}

} // namespace ucx_mp::sim

// What tests of programs in virtual time start from: a small world, and two nodes with a reliable connection.
#pragma once
#include <boost/test/unit_test.hpp>

#include "small_fabric.h"
#include "softhca/verbs.h"

namespace softhca::test {

using namespace softhca::sim;

inline constexpr uint32_t kMiB = 1 << 20;

// `n` nodes on one switch, 1 GB/s.
inline std::vector<uint64_t> star(uint32_t n, uint8_t lmc = 0) {
    SmallFabric f(lmc);
    const uint32_t s = f.sw();
    for (uint32_t i = 0; i < n; ++i) f.port_to_switch(f.node(), s);
    return f.build();
}

inline const FabricImage& image(const std::vector<uint64_t>& words) {
    return *reinterpret_cast<const FabricImage*>(words.data());
}

struct Pair {
    explicit Pair(World& world, size_t bytes = kMiB, uint8_t timeout = 14, uint8_t retry = 7)
        : a(world, 0, 64), b(world, 1, 64), from(bytes), to(bytes), qa(a), qb(b), ma(a.reg(from.data(), bytes)),
          mb(b.reg(to.data(), bytes)) {
        qa.connect(qb, 0, timeout, retry);
        qb.connect(qa, 0, timeout, retry);
        for (size_t i = 0; i < bytes; ++i) from[i] = static_cast<char>(i * 7 + i / 256);
    }
    Hca a, b;
    std::vector<char> from, to;
    Rc qa, qb;
    ibv_mr *ma, *mb;
};

} // namespace softhca::test

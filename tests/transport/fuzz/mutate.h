// Plain mutations of good samples: the same ones in every run and with any compiler.
#pragma once

#include <array>
#include <random>

#include "fuzz/targets.h"

namespace ucx_mp::fuzz {

struct Counts {
    unsigned accepted = 0, refused = 0;
};

// A few random changes: bits, interesting bytes, 32-bit values, cuts, growth, pieces of another sample.
inline void mutate(Bytes& b, const std::vector<Bytes>& samples, std::mt19937_64& random) {
    const auto pick = [&](std::size_t n) { return std::size_t(random() % n); };
    for (std::size_t changes = 1 + pick(4); changes > 0; --changes) {
        if (b.empty()) b.push_back(0);
        switch (pick(7)) {
        case 0:
            b[pick(b.size())] ^= std::uint8_t(1u << pick(8));
            break;
        case 1:
            b[pick(b.size())] = std::array<std::uint8_t, 6>{0, 1, 0x7f, 0x80, 0xfe, 0xff}[pick(6)];
            break;
        case 2:
            b[pick(b.size())] += std::uint8_t(pick(2) ? 1 : 255);
            break;
        case 3:
            for (std::size_t i = pick(b.size()), k = 0; k < 4 && i + k < b.size(); ++k)
                b[i + k] = std::uint8_t(random());
            break;
        case 4:
            b.resize(pick(b.size() + 1));
            break;
        case 5:
            b.resize(b.size() + pick(40));
            break;
        case 6: {
            const Bytes& other = samples[pick(samples.size())];
            const std::size_t from = pick(other.size());
            const std::size_t n = std::min(b.size() - std::min(b.size(), from), pick(other.size() - from + 1));
            std::copy_n(other.begin() + std::ptrdiff_t(from), n, b.begin() + std::ptrdiff_t(std::min(b.size(), from)));
            break;
        }
        }
    }
    // Half of the time the length is right, or nothing else would ever be looked at.
    if (b.size() >= 8 && pick(2)) {
        b[6] = std::uint8_t(b.size());
        b[7] = std::uint8_t(b.size() >> 8);
    }
}

template <class Try> Counts campaign(const std::vector<Bytes>& samples, unsigned rounds, const Try& attempt) {
    std::mt19937_64 random(1);
    Counts n;
    for (unsigned i = 0; i < rounds; ++i) {
        Bytes b = samples[random() % samples.size()];
        mutate(b, samples, random);
        const std::vector<std::uint8_t> exact(b.begin(), b.end()); // no spare capacity for a sanitizer to miss
        ++(attempt(exact) ? n.accepted : n.refused);
    }
    return n;
}

} // namespace ucx_mp::fuzz

// Little-endian numbers in byte buffers. The caller checks offsets.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>

namespace ucx_mp::connect {

static_assert(std::endian::native == std::endian::little, "wire structures are read and written as they are in memory");

template <std::unsigned_integral T> [[nodiscard]] T load(const std::uint8_t* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

template <std::unsigned_integral T> void store(std::uint8_t* at, T value) { std::memcpy(at, &value, sizeof value); }

// Stateless mixing (the finalizer of splitmix64): hashes and jitter.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// Compares in a time that does not tell where they differ. No side has the secret 0.
[[nodiscard]] constexpr bool same_secret(std::uint64_t told, std::uint64_t secret) {
    return bool(unsigned((told ^ secret) == 0) & unsigned(secret != 0));
}

} // namespace ucx_mp::connect

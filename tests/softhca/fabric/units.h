// Quantities as people write them in a fabric file: times, rates, sizes. Every function takes the whole text and
// returns nothing when it is not such a quantity; the caller knows file and line and reports `allowed_*`.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace softhca {

// "150 ns", "1.5 us", "2 ms", "1 s", or a plain 0. Result in nanoseconds; may be negative only if `negative` is set.
std::optional<int64_t> parse_time_ns(std::string_view text, bool negative = false);
// A partition key, hexadecimal with 0x or decimal. Its number (the low 15 bits) is not 0.
std::optional<uint16_t> parse_pkey(std::string_view text);
inline constexpr const char* allowed_pkey = "a partition key: 0x8001 (full member), 0x1 (limited member) and so on";
inline constexpr const char* allowed_time = "a time with its unit: 150 ns, 1.5 us, 2 ms, 1 s, or 0";

// "4096", "32 KiB", "1 MiB", "26 B". Result in bytes.
std::optional<uint64_t> parse_size(std::string_view text);
inline constexpr const char* allowed_size = "bytes: 4096, 26 B, 32 KiB, 1 MiB";

// A link speed: what the wire carries and how a port reports it.
struct Rate {
    uint64_t bytes_per_second = 0; // of data, after encoding; 0 = unlimited
    uint8_t speed = 32;            // ibv_port_attr.active_speed (EDR)
    uint8_t width = 2;             // ibv_port_attr.active_width (4x)
};

// "8 Gb/s", "500 Mb/s", "1 GB/s" (data rate), an InfiniBand speed "DDR 4x" / "4x DDR" / "EDR" (4x), or "unlimited".
// Speeds count as their data rate (8/10 or 64/66 encoding taken off). For a plain number, speed and width are those of
// the InfiniBand link whose data rate is nearest, so that programs that read the port attributes see something close.
std::optional<Rate> parse_rate(std::string_view text);
inline constexpr const char* allowed_rate =
    "a data rate (8 Gb/s, 500 Mb/s, 1 GB/s), an InfiniBand speed and width (SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR; "
    "1x, 2x, 4x, 8x, 12x), or unlimited";

// Inverse of the above, for messages: "8 Gb/s", "unlimited"; "1.5 us".
std::string rate_text(uint64_t bytes_per_second);
std::string time_text(uint64_t ns);

} // namespace softhca

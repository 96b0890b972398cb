// Windows and point-to-point messages of pml_glue (tests/pml/forge.h): a conversation of three ranks, into which the
// input is thrown. An input is the conversation's seed, then for each message: before which of those that the victim
// hears, its kind, its length, its bytes. Addresses count from the victim's window, and names have no secrets, so that
// an input is the same in every process.
#include <filesystem>
#include <fstream>

#include "fuzz/targets.h"

#define BOOST_REQUIRE(what) ucx_mp::fuzz::must(what)
#define BOOST_REQUIRE_EQUAL(one, other) ucx_mp::fuzz::must((one) == (other))
#include "tests/pml/forge.h"

namespace {

using namespace ucx_mp::glue;
using namespace ucx_mp::glue::test;

constexpr unsigned kSeeds = 12, kActs = 24;
constexpr std::size_t kHeader = 4; // of a message: before which, kind, length

// All addresses of a message.
void relocate(MessageKind kind, Bytes& message, std::uint64_t by) {
    std::size_t first = message.size(), step = message.size() + 1;
    if (kind == wire::kWindowOperation) first = sizeof(wire::OperationHeader), step = sizeof(wire::WireRun);
    if (kind == wire::kWindowSync) first = sizeof(wire::WindowSync);
    if (kind == wire::kWindowAsk) first = offsetof(wire::AskHeader, address);
    if (kind == wire::kRequest) first = offsetof(wire::RequestHeader, address);
    if (kind == wire::kClear) first = offsetof(wire::ClearHeader, address);
    for (unsigned i = 0; i < 3 && first + i * step + sizeof by <= message.size(); ++i) {
        std::uint64_t address;
        std::memcpy(&address, message.data() + first + i * step, sizeof address);
        address += by;
        std::memcpy(message.data() + first + i * step, &address, sizeof address);
    }
}

// `heard(scene, which, kind, message)` before each message that the victim hears.
template <class F> void converse(std::uint32_t seed, F&& heard) {
    Scene scene(seed);
    for (Rank& rank : scene.world.ranks)
        for (unsigned to = 0; to < 3; ++to) rank.engine->peer(100 + to)->secret = 0;
    unsigned count = 0;
    scene.world.network.tap = [&](FakePort& to, MessageKind kind, const Bytes& message) {
        if (&to == scene.victim().port.get()) heard(scene, count++, kind, message);
    };
    for (unsigned i = 0; i < kActs; ++i) {
        scene.act();
        scene.world.progress();
    }
    for (unsigned i = 0; i < 30; ++i) scene.world.progress();
    ucx_mp::fuzz::must(scene.intact());
}

} // namespace

// Good messages, if there is a folder for them.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
    const std::filesystem::path folder = (*argv)[*argc - 1];
    if (*argc < 2 || folder.string().starts_with('-') || std::filesystem::is_regular_file(folder)) return 0;
    std::filesystem::create_directories(folder);
    for (std::uint32_t seed = 0; seed < kSeeds; ++seed)
        converse(seed, [&](Scene& scene, unsigned which, MessageKind kind, Bytes message) {
            if (which > 255) return;
            relocate(kind, message, -scene.base());
            const unsigned char head[] = {static_cast<unsigned char>(seed), static_cast<unsigned char>(which), kind,
                                          static_cast<unsigned char>(message.size()),
                                          static_cast<unsigned char>(message.size() >> 8)};
            std::ofstream file(folder / (std::to_string(seed) + "_" + std::to_string(which)), std::ios::binary);
            file.write(reinterpret_cast<const char*>(head), sizeof head);
            file.write(reinterpret_cast<const char*>(message.data()), std::streamsize(message.size()));
        });
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size <= kHeader) return 0;
    std::size_t at = 1;
    converse(data[0] % kSeeds, [&](Scene& scene, unsigned which, MessageKind, const Bytes&) {
        while (at + kHeader <= size && data[at] <= which) {
            const auto kind = static_cast<MessageKind>(data[at + 1] % 32);
            const std::size_t length = std::min<std::size_t>(data[at + 2] | data[at + 3] << 8, size - at - kHeader);
            const auto* const bytes = reinterpret_cast<const std::byte*>(data + at + kHeader);
            Bytes message(bytes, bytes + length);
            relocate(kind, message, scene.base());
            scene.say(kind, message);
            at += kHeader + length;
        }
    });
    return 0;
}

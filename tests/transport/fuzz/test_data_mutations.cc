// The data path's parser, and the receiver behind it, under plain mutations of good messages.
#define BOOST_TEST_MODULE data_mutations
#include "both_transports.h"
#include "fuzz/data_targets.h"
#include "fuzz/mutate.h"
#include "uct_mp/channel/data_path.h"

using namespace ucx_mp;
using namespace ucx_mp::fuzz;

BOOST_AUTO_TEST_CASE(good_messages_are_accepted) {
    for (const Bytes& b : sample_data()) {
        BOOST_TEST(try_data(b));
        // Active messages may be of any length; nothing else may be shorter.
        const bool am = (b[0] & 0xf) == static_cast<int>(channel::Kind::am) && !(b[1] & channel::flag::fenced);
        for (std::size_t n = 0; n < b.size(); ++n)
            BOOST_TEST((try_data(Bytes(b.begin(), b.begin() + std::ptrdiff_t(n))) ? am || b.size() > 40 : true));
    }
}

BOOST_AUTO_TEST_CASE(mutated_messages) {
    const Counts n = campaign(sample_data(), 300'000, [](std::span<const std::uint8_t> b) { return try_data(b); });
    BOOST_TEST(n.accepted > 10'000u);
    BOOST_TEST(n.refused > 10'000u);
}

// Received from the peer itself, over its queue pair or with its tag: whatever it says, handlers get what has come,
// numbers go on by one, and what makes no sense ends its channel and nobody else's.
BOOST_DATA_TEST_CASE(mutated_messages_are_received, sim::kBoth, transport) {
    using namespace ucx_mp::channel;
    std::mt19937_64 random(7);
    const std::vector<Bytes> samples = sample_data();
    struct Sink {
        std::size_t longest = 0;
        unsigned calls = 0;
        static Status take(void* self, void* data, std::size_t length, unsigned) {
            auto& sink = *static_cast<Sink*>(self);
            sink.longest = length;
            ++sink.calls;
            std::memset(data, 0x5a, length); // it is the handler's
            return Status::ok;
        }
    };
    unsigned ended = 0, delivered = 0;
    for (unsigned round = 0; round < 150; ++round) {
        channel::Config config = sim::config_of(transport);
        config.receive_depth = 64;
        config.window = 16;
        config.segment = 1024;
        sim::Cluster cluster("two-rail", 2, config);
        for (unsigned i = 0; i < 2; ++i) {
            cluster.node(i).services().threshold = LogLevel::error;
            cluster.node(i).services().quiet = true;
            cluster.node(i).on_failure = [](Channel&, Status) {};
        }
        Sink sink;
        for (unsigned id = 0; id < kAmIds; ++id) cluster.node(1).on_am(id, Sink::take, &sink);
        BOOST_REQUIRE(cluster.until(
            [&] { return cluster.node(0).iface().am_short(cluster.channel(0, 1), 5, 0, nullptr, 0) == Status::ok; }));
        cluster.run_for(1'000'000);
        auto& impl = cluster.node(1).iface().core();
        Channel& to = cluster.channel(1, 0);
        for (unsigned i = 0; i < 200 && !(to.gates & gate::failed); ++i) {
            Bytes b = samples[random() % samples.size()];
            const unsigned mutations = random() % 6 ? 0 : 1 + random() % 2;
            for (unsigned m = 0; m < mutations; ++m) mutate(b, samples, random);
            b.resize(std::min<std::size_t>(b.size(), 1024));
            if (b.size() >= sizeof(MessageHeader) && random() % 8) { // else nothing else would ever be looked at
                auto& header = *reinterpret_cast<MessageHeader*>(b.data());
                header.channel = to.local_id;
                header.sequence = to.expected + static_cast<std::uint32_t>(random() % 4 ? 0 : random() % 40 - 20);
                header.ack = to.acked + static_cast<std::uint32_t>(random() % 3 - 1);
            }
            // As a completion brings it.
            Adapter& adapter = impl.adapters[random() % impl.adapter_count];
            const std::size_t room = impl.layout.message_offset + std::max<std::size_t>(b.size(), kHeader);
            const std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(64, (room + 63) / 64 * 64),
                                                                std::free);
            auto* const buffer = new (memory.get()) ReceiveBuffer{};
            buffer->adapter = adapter.index;
            buffer->life = adapter.device->life;
            std::byte* const message = impl.layout.message(buffer);
            std::memcpy(message, b.data(), b.size());
            std::uint32_t number = 0;
            for (unsigned path = 0; path < to.wiring.places && !adapter.tagged; ++path)
                if (to.wiring.paths[path].device == adapter.index) number = to.wiring.paths[path].own[0]->qp->qp_num;
            std::memcpy(message - kTagBytes, &to.connection.own_dc_tag, kTagBytes);
            const std::uint32_t expected = to.expected, calls = sink.calls, before = to.early_count;
            sink.longest = 0;
            channel::Receiver::receive(impl, adapter, buffer,
                                       static_cast<std::uint32_t>(b.size()) + (adapter.tagged ? kTagBytes : 0), number);
            BOOST_REQUIRE(adapter.free == &buffer->wr); // given back, whatever it was
            adapter.free = buffer->wr.next;
            --adapter.free_count;
            BOOST_REQUIRE(to.expected - expected <= 1 + before);
            BOOST_REQUIRE(sink.calls - calls <= 1u + before);
            if (before == 0 && sink.calls != calls && b.size() >= kHeader) {
                const auto& header = *reinterpret_cast<const MessageHeader*>(b.data());
                BOOST_REQUIRE((sink.longest == payload_bytes(header, static_cast<std::uint32_t>(b.size())) ||
                               header.flags & flag::part));
            }
            delivered += sink.calls - calls;
        }
        ended += (to.gates & gate::failed) != 0;
        cluster.run_for(100'000);
    }
    BOOST_TEST(ended > 20u);
    BOOST_TEST(delivered > 200u);
}

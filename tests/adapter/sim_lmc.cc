// Ports with 32, 64 and 128 LIDs (LMC 5, 6, 7), on a fabric that the test writes and the real opensm routes.
#define BOOST_TEST_MODULE sim_lmc
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "fabric/trace.h"
#include "sim_fixture.h"

using namespace softhca;
using namespace softhca::test;
namespace fs = std::filesystem;

namespace {

// Two nodes on each of two leaves, eight ways between the leaves; routes are computed here, not taken from a cache.
struct Fabric {
    explicit Fabric(int lmc) : folder(fs::temp_directory_path() / ("sim-lmc-" + std::to_string(getpid()))) {
        fs::create_directories(folder);
        setenv("XDG_CACHE_HOME", folder.c_str(), 1);
        file = folder / "many-lids.yaml";
        std::ofstream(file) << "name: many-lids\nlmc: " << lmc << R"(
adapters:
  hca:
    wire_header: 26 B
nodes:
  - name: node[0-3]
    adapters: [hca]
switches:
  - {name: 'leaf[1-2]', ports: 10, latency: 100 ns}
  - {name: 'spine[1-8]', ports: 2, latency: 100 ns}
link_defaults: {rate: SDR 4x, latency: 25 ns, buffer: 32 KiB}
links:
  - {from: 'node[0-1]:0', to: leaf1}
  - {from: 'node[2-3]:0', to: leaf2}
  - {from: 'leaf[1-2]', to: 'spine[1-8]', wiring: all}
)";
    }
    ~Fabric() { fs::remove_all(folder); }
    fs::path folder, file;
};

} // namespace

BOOST_AUTO_TEST_CASE(every_lid_of_a_port_answers) {
    for (const int lmc : {5, 6, 7}) {
        const Fabric fabric(lmc);
        World world(fabric.file.string());
        const uint32_t lids = 1u << lmc;
        Hca a(world, 0, 512), b(world, 2, 512);
        BOOST_TEST(a.port.lmc == lmc);
        BOOST_TEST(b.port.lid % lids == 0u);
        std::vector<char> from(lids * 64), to(lids * 64);
        for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 7 + i / 64 + 1);
        const ibv_mr *ma = a.reg(from.data(), from.size()), *mb = b.reg(to.data(), to.size());

        // A connection over each LID, with the same path bits on the way back.
        std::vector<std::unique_ptr<Rc>> ends;
        std::vector<uint64_t> before(world.image().links);
        for (uint32_t l = 0; l < world.image().links; ++l) before[l] = world.link(l).packets;
        for (uint32_t path = 0; path < lids; ++path) {
            Rc& x = *ends.emplace_back(std::make_unique<Rc>(a, 4, 4));
            Rc& y = *ends.emplace_back(std::make_unique<Rc>(b, 4, 4));
            x.connect(y, static_cast<uint8_t>(path));
            y.connect(x, static_cast<uint8_t>(path));
            x.post(IBV_WR_RDMA_WRITE, ma, path * 64, 64, mb, path * 64, path);
        }
        world.run();
        ibv_wc wc{};
        for (uint32_t n = 0; n < lids; ++n) {
            BOOST_REQUIRE(ibv_poll_cq(a.cq, 1, &wc) == 1);
            BOOST_TEST(wc.status == IBV_WC_SUCCESS);
        }
        BOOST_TEST((from == to));
        // The subnet manager spreads the LIDs over all eight ways, and packets take the way of their LID: the counters
        // of the cables say what the tables say.
        std::vector<uint64_t> expected(world.image().links);
        for (uint32_t path = 0; path < lids; ++path) {
            for (const Trace& way : {trace(world.image(), 0, b.port.lid + path),    // the write ...
                                     trace(world.image(), 2, a.port.lid + path)}) { // ... and its acknowledgment
                BOOST_TEST(way.links.size() == 4u);
                for (const uint32_t link : way.links) ++expected[link];
            }
        }
        uint32_t used = 0;
        for (uint32_t l = 0; l < world.image().links; ++l) {
            BOOST_TEST(world.link(l).packets - before[l] == expected[l]);
            used += expected[l] != 0 && world.image().link(l).from_kind == EndKind::sw;
        }
        BOOST_TEST(used == 2u * (8 + 8 + 1)); // leaf to each spine, each spine to the other leaf, leaf to the node
        // A packet for the LID behind the last one goes nowhere, or to another port.
        Rc x(a), y(b);
        const uint16_t lid = b.port.lid;
        b.port.lid = static_cast<uint16_t>(lid + lids);
        x.connect(y, 0, 8, 0);
        b.port.lid = lid;
        y.connect(x);
        x.post(IBV_WR_RDMA_WRITE, ma, 0, 64, mb);
        world.run();
        BOOST_REQUIRE(ibv_poll_cq(a.cq, 1, &wc) == 1);
        BOOST_TEST(wc.status == IBV_WC_RETRY_EXC_ERR);
        // More path bits than the port has.
        ibv_ah_attr av{};
        av.dlid = b.port.lid;
        av.port_num = 1;
        av.src_path_bits = static_cast<uint8_t>(lids - 1);
        ibv_ah* ah = ibv_create_ah(a.pd, &av);
        BOOST_TEST(ah);
        if (ah) ibv_destroy_ah(ah);
        if (lmc < 7) {
            av.src_path_bits = static_cast<uint8_t>(lids);
            BOOST_TEST(!ibv_create_ah(a.pd, &av));
        }
    }
}

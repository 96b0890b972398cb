// Partitions: which packets are taken, by the keys of both ends, and tables that change.
#define BOOST_TEST_MODULE sim_partitions
#include <endian.h>

#include "sim_fixture.h"

using namespace softhca;
using namespace softhca::test;

namespace {

// Of a write from node 0 to node 1 with these keys at index 1.
ibv_wc_status write_between(const std::string& from, const std::string& to) {
    World world(image(star(2)));
    world.fault("pkeys 0x9," + from + " 0:0:1");
    world.fault("pkeys 0x9," + to + " 1:0:1");
    Pair p(world, 4096);
    for (Rc* end : {&p.qa, &p.qb}) {
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RESET;
        BOOST_REQUIRE(ibv_modify_qp(end->qp, &a, IBV_QP_STATE) == 0);
        end->pkey_index = 1;
    }
    p.qa.connect(p.qb, 0, 10, 2);
    p.qb.connect(p.qa, 0, 10, 2);
    p.qa.post(IBV_WR_RDMA_WRITE, p.ma, 0, 4096, p.mb);
    ibv_wc wc{};
    BOOST_REQUIRE(world.run_until([&] { return ibv_poll_cq(p.a.cq, 1, &wc) == 1; }));
    BOOST_TEST((std::memcmp(p.from.data(), p.to.data(), 4096) == 0) == (wc.status == IBV_WC_SUCCESS));
    return wc.status;
}

std::vector<unsigned> table(const Hca& hca) {
    std::vector<unsigned> out;
    __be16 key;
    for (int i = 0; i < hca.port.pkey_tbl_len && ibv_query_pkey(hca.context, 1, i, &key) == 0; ++i)
        if (key) out.push_back(be16toh(key));
    return out;
}

} // namespace

BOOST_AUTO_TEST_CASE(members_of_one_partition) {
    BOOST_TEST(write_between("0x8001", "0x8001") == IBV_WC_SUCCESS);
    BOOST_TEST(write_between("0x8001", "1") == IBV_WC_SUCCESS); // a limited member, with a full one
    BOOST_TEST(write_between("0x1", "0x8001") == IBV_WC_SUCCESS);
    BOOST_TEST(write_between("0x1", "0x1") == IBV_WC_RETRY_EXC_ERR); // two limited ones
    BOOST_TEST(write_between("0x8001", "0x8002") == IBV_WC_RETRY_EXC_ERR);
    BOOST_TEST(write_between("0xffff", "0x8001") == IBV_WC_RETRY_EXC_ERR);
}

BOOST_AUTO_TEST_CASE(tables_change) {
    World world(image(star(2)));
    Pair p(world, 4096, 10, 2);
    BOOST_TEST(table(p.a) == std::vector<unsigned>{0xffff}, boost::test_tools::per_element());
    ibv_wc wc{};
    const auto write = [&] {
        p.qa.post(IBV_WR_RDMA_WRITE, p.ma, 0, 64, p.mb);
        BOOST_REQUIRE(world.run_until([&] { return ibv_poll_cq(p.a.cq, 1, &wc) == 1; }));
        return wc.status;
    };
    BOOST_TEST(write() == IBV_WC_SUCCESS);
    world.fault("pkeys 0x8005,0xffff 0:0:1");
    BOOST_TEST(table(p.a) == (std::vector<unsigned>{0x8005, 0xffff}), boost::test_tools::per_element());
    BOOST_TEST(ibv_get_pkey_index(p.a.context, 1, htobe16(0xffff)) == 1);
    ibv_async_event event;
    BOOST_REQUIRE(ibv_get_async_event(p.a.context, &event) == 0);
    BOOST_TEST(event.event_type == IBV_EVENT_PKEY_CHANGE);
    BOOST_TEST(event.element.port_num == 1);
    ibv_ack_async_event(&event);
    BOOST_TEST(write() == IBV_WC_RETRY_EXC_ERR); // index 0 is of another partition now
    BOOST_CHECK_THROW(world.fault("pkeys 0x8000 0:0:1"), std::runtime_error);
    BOOST_CHECK_THROW(world.fault("pkeys 1,2,3,4,5,6,7,8,9 0:0:1"), std::runtime_error);
    BOOST_CHECK_THROW(world.fault("pkeys 0x1ffff 0:0:1"), std::runtime_error);
}

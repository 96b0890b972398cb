// Keys that are rubbish, as Open MPI 4.1's osc/ucx hands them over now and then: UCP goes on without the memory domain,
// by messages, and nothing is given up that it has not got.
#define BOOST_TEST_MODULE transport_ucp_rubbish
#include "fixture.h"

#include <ucp/api/ucp.h>

#include <boost/test/data/test_case.hpp>

using namespace uct_test;

namespace {

// A worker with an endpoint to itself.
class Self {
public:
    explicit Self(const char* protocols) {
        for (const auto& [name, value] : Options{{"TLS", "mp_rc"}, {"PROTO_ENABLE", protocols}})
            setenv((std::string("UCX_") + name).c_str(), value, 1);
        ucp_config_t* config = nullptr;
        BOOST_REQUIRE(ucp_config_read(nullptr, nullptr, &config) == UCS_OK);
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_RMA;
        BOOST_REQUIRE(ucp_init(&params, config, &context) == UCS_OK);
        ucp_config_release(config);
        const ucp_worker_params_t worker_params{};
        BOOST_REQUIRE(ucp_worker_create(context, &worker_params, &worker) == UCS_OK);
        ucp_address_t* address = nullptr;
        std::size_t length = 0;
        BOOST_REQUIRE(ucp_worker_get_address(worker, &address, &length) == UCS_OK);
        ucp_ep_params_t ep_params{};
        ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        ep_params.address = address;
        BOOST_REQUIRE(ucp_ep_create(worker, &ep_params, &ep) == UCS_OK);
        ucp_worker_release_address(worker, address);
    }
    ~Self() {
        const ucp_request_param_t param{};
        wait(ucp_ep_close_nbx(ep, &param));
        ucp_worker_destroy(worker);
        ucp_cleanup(context);
    }
    Self(const Self&) = delete;
    void wait(ucs_status_ptr_t request) {
        BOOST_REQUIRE(!UCS_PTR_IS_ERR(request));
        if (!UCS_PTR_IS_PTR(request)) return;
        while (ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(worker);
        BOOST_TEST(ucp_request_check_status(request) == UCS_OK);
        ucp_request_free(request);
    }
    ucp_context_h context = nullptr;
    ucp_worker_h worker = nullptr;
    ucp_ep_h ep = nullptr;
};

constexpr std::size_t kHeader = 8 + 1; // of UCP's packed key: memory domains, memory type; then a length, and our key

} // namespace

BOOST_DATA_TEST_CASE(operations_go_by_messages, boost::unit_test::data::make({"n", "y"}), protocols) {
    Self self(protocols);
    std::vector<char> there(4096, '.');
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address = there.data();
    params.length = there.size();
    ucp_mem_h memory = nullptr;
    BOOST_REQUIRE(ucp_mem_map(self.context, &params, &memory) == UCS_OK);
    void* packed = nullptr;
    std::size_t length = 0;
    BOOST_REQUIRE(ucp_rkey_pack(self.context, memory, &packed, &length) == UCS_OK);
    const std::vector<unsigned char> good(static_cast<unsigned char*>(packed),
                                          static_cast<unsigned char*>(packed) + length);
    ucp_rkey_buffer_release(packed);
    BOOST_REQUIRE(good.size() > kHeader && good.size() > kHeader + good[kHeader]);
    for (const int rubbish : {-1, 0, 0x3a, 0xff}) { // -1: none
        std::vector<unsigned char> key = good;
        if (rubbish >= 0) std::fill_n(key.begin() + kHeader + 1, good[kHeader], static_cast<unsigned char>(rubbish));
        ucp_rkey_h rkey = nullptr;
        BOOST_REQUIRE(ucp_ep_rkey_unpack(self.ep, key.data(), &rkey) == UCS_OK);
        const std::string text = "put with " + std::to_string(rubbish);
        const ucp_request_param_t param{};
        const auto address = reinterpret_cast<std::uint64_t>(there.data());
        self.wait(ucp_put_nbx(self.ep, text.data(), text.size(), address, rkey, &param));
        self.wait(ucp_ep_flush_nbx(self.ep, &param));
        BOOST_TEST(std::string(there.data(), text.size()) == text);
        std::string back(text.size(), ' ');
        self.wait(ucp_get_nbx(self.ep, back.data(), back.size(), address, rkey, &param));
        BOOST_TEST(back == text);
        ucp_rkey_destroy(rkey);
    }
    BOOST_REQUIRE(ucp_mem_unmap(self.context, memory) == UCS_OK);
}

// Which of our transports UCP takes when it may choose: the one that adapts, however many peers it expects.
#define BOOST_TEST_MODULE transport_ucp_select
#include "fixture.h"

#include <ucp/api/ucp.h>

#include <boost/test/data/test_case.hpp>
#include <cstdio>

using namespace uct_test;

namespace {

// What the lanes of an endpoint to ourselves are, as UCP shows them.
std::string lanes(const char* adapt, std::size_t peers, const char* protocols) {
    for (const auto& [name, value] :
         Options{{"TLS", "mp_rc,mp_dc"}, {"MP_DC_ADAPT", adapt}, {"PROTO_ENABLE", protocols}, {"NET_DEVICES", "all"}})
        setenv((std::string("UCX_") + name).c_str(), value, 1);
    setenv("UCX_NUM_EPS", std::to_string(peers).c_str(), 1);
    ucp_config_t* config = nullptr;
    BOOST_REQUIRE(ucp_config_read(nullptr, nullptr, &config) == UCS_OK);
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO64;
    ucp_context_h context = nullptr;
    BOOST_REQUIRE(ucp_init(&params, config, &context) == UCS_OK);
    ucp_config_release(config);
    ucp_worker_params_t worker_params{};
    ucp_worker_h worker = nullptr;
    BOOST_REQUIRE(ucp_worker_create(context, &worker_params, &worker) == UCS_OK);
    ucp_address_t* address = nullptr;
    std::size_t length = 0;
    BOOST_REQUIRE(ucp_worker_get_address(worker, &address, &length) == UCS_OK);
    ucp_ep_params_t ep_params{};
    ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    ep_params.address = address;
    ucp_ep_h ep = nullptr;
    BOOST_REQUIRE(ucp_ep_create(worker, &ep_params, &ep) == UCS_OK);
    char* text = nullptr;
    std::size_t size = 0;
    std::FILE* const stream = open_memstream(&text, &size);
    ucp_ep_print_info(ep, stream);
    std::fclose(stream);
    const std::string shown(text);
    std::free(text);
    const ucp_request_param_t param{};
    if (ucs_status_ptr_t closing = ucp_ep_close_nbx(ep, &param); UCS_PTR_IS_PTR(closing)) {
        while (ucp_request_check_status(closing) == UCS_INPROGRESS) ucp_worker_progress(worker);
        ucp_request_free(closing);
    }
    ucp_worker_release_address(worker, address);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    return shown;
}

} // namespace

BOOST_DATA_TEST_CASE(the_one_that_adapts,
                     boost::unit_test::data::make({std::size_t{2}, std::size_t{64}, std::size_t{65536}}) *
                         boost::unit_test::data::make({"n", "y"}),
                     peers, protocols) {
    for (const char* adapt : {"on", "eager"}) {
        const std::string shown = lanes(adapt, peers, protocols);
        BOOST_TEST_CONTEXT(shown) {
            BOOST_TEST(shown.find("mp_dc") != std::string::npos);
            BOOST_TEST(shown.find("mp_rc") == std::string::npos);
        }
    }
}

// Without adaptation it is as it was: RC.
BOOST_AUTO_TEST_CASE(without_adaptation) {
    const std::string shown = lanes("off", 2, "n");
    BOOST_TEST_CONTEXT(shown) { BOOST_TEST(shown.find("mp_rc") != std::string::npos); }
}

// A lane of UCT's while adapters come: UCX looks for them at every question.
#define BOOST_TEST_MODULE lane
#include <dlfcn.h>
#include <ucs/async/async_fwd.h>

#include <boost/test/unit_test.hpp>

#include "pml_glue/core/uct/lane.h"
#include "pml_glue/core/uct/transports.h"

using namespace ucx_mp::glue;

static unsigned late = 0; // domains that nobody sees at the first question

// Instead of UCX's.
extern "C" ucs_status_t uct_component_query(uct_component_h component, uct_component_attr_t* attributes) {
    static const auto real = reinterpret_cast<decltype(&uct_component_query)>(dlsym(RTLD_NEXT, "uct_component_query"));
    const ucs_status_t status = real(component, attributes);
    if (!(attributes->field_mask & UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES)) attributes->md_resource_count -= late;
    return status;
}

BOOST_AUTO_TEST_CASE(a_domain_comes_between_two_questions) {
    ucs_async_context_t* async = nullptr;
    uct_worker_h worker = nullptr;
    BOOST_TEST_REQUIRE(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async) == UCS_OK);
    BOOST_TEST_REQUIRE(uct_worker_create(async, UCS_THREAD_MODE_SINGLE, &worker) == UCS_OK);
    for (late = 0; late < 2; ++late) {
        Lane lane;
        std::string error;
        BOOST_TEST(lane.open("self", worker, nullptr, nullptr, error), error);
    }
    uct_worker_destroy(worker);
    ucs_async_context_destroy(async);
}

BOOST_AUTO_TEST_CASE(ucx_tls_chooses_the_network_transport) {
    const std::string both = "self,posix,cma,mp_rc,mp_dc";
    for (const char* tls : {static_cast<const char*>(nullptr), "", "mp_rc,mp_dc", "mp_dc,self,mp_rc", "sm,self",
                            "^mp_rc", "^sm,mp_dc", "rc_v", "mp_rcx"})
        BOOST_TEST(transports_of("auto", tls) == both);
    for (const char* tls : {"mp_dc", "self,mp_dc", "mp_dc,sm"})
        BOOST_TEST(transports_of("auto", tls) == "self,posix,cma,mp_dc");
    BOOST_TEST(transports_of("auto", "mp_rc,sm,self") == "self,posix,cma,mp_rc");
    BOOST_TEST(transports_of("mp_rc", "mp_dc") == "mp_rc"); // named
}

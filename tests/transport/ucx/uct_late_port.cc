// A port that is down when a process starts and comes up while it works: what has to be found out about its adapter
// then must not keep the application waiting.
#define BOOST_TEST_MODULE transport_ucx_late_port
#include "ears.h"
#include "fixture.h"

#include <algorithm>
#include <boost/test/data/test_case.hpp>
#include <ctime>

using namespace uct_test;

namespace {

const char* const kTransports[] = {"mp_rc", "mp_dc"};
const auto each_transport = boost::unit_test::data::make(kTransports);
const char* const kPort = "0:softhca_1:1";

double processor_time() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

// As Domain::until(); returns what the longest call of progress has taken of the processor, below 0: in vain.
double longest_until(Domain& domain, const std::function<bool()>& condition, double seconds = 20) {
    double longest = 0;
    for (const double end = Domain::now() + seconds; !condition();) {
        if (Domain::now() > end) return -1;
        const double begin = processor_time();
        uct_worker_progress(domain.worker);
        longest = std::max(longest, processor_time() - begin);
    }
    return longest;
}

} // namespace

BOOST_DATA_TEST_CASE(its_test_keeps_nobody_waiting, each_transport, transport) {
    const Restore restore{{std::string("fault drop 0% ") + kPort, std::string("port up ") + kPort}};
    softhca(std::string("port down ") + kPort);
    const Ears ears(UCS_LOG_LEVEL_INFO, "packet numbers");
    Domain domain;
    Interface a(domain, transport), b(domain, transport);
    const uct_ep_h ep = a.connect(b);
    const auto send = [&] { return uct_ep_am_short(ep, 7, 0, nullptr, 0) == UCS_OK; };
    BOOST_REQUIRE(domain.until(send));
    // Nothing that is sent over it comes back: the test waits for as long as it can.
    softhca(std::string("fault drop 100% ") + kPort);
    softhca(std::string("port up ") + kPort);
    const double longest = longest_until(domain, [&] { return Ears::all().size() == 2; }); // each interface has its own
    BOOST_TEST(longest >= 0);
    BOOST_TEST(longest < 0.1);
    for (const std::string& line : Ears::all()) BOOST_TEST(line.find("has not been found") != std::string::npos, line);
    // The next time it is as good as any.
    Ears::forget();
    softhca(std::string("port down ") + kPort);
    (void)domain.until([] { return false; }, 0.05);
    softhca(std::string("fault drop 0% ") + kPort);
    softhca(std::string("port up ") + kPort);
    BOOST_TEST(longest_until(domain, [&] { return Ears::all().size() == 2; }) >= 0);
    for (const std::string& line : Ears::all())
        BOOST_TEST(line.find(" tells packet numbers") != std::string::npos, line);
    BOOST_TEST(domain.until(send));
    a.flush(ep);
    uct_ep_destroy(ep);
}

// Closing an interface ends its test.
BOOST_DATA_TEST_CASE(its_test_ends_with_the_interface, each_transport, transport) {
    const Restore restore{{std::string("fault drop 0% ") + kPort, std::string("port up ") + kPort}};
    softhca(std::string("port down ") + kPort);
    const Ears ears(UCS_LOG_LEVEL_INFO, "packet numbers");
    Domain domain;
    double begin = 0;
    {
        Interface a(domain, transport);
        softhca(std::string("fault drop 100% ") + kPort);
        softhca(std::string("port up ") + kPort);
        (void)domain.until([] { return false; }, 0.1);
        begin = Domain::now();
    }
    BOOST_TEST(Domain::now() - begin < 0.4); // it would take half a second more
    BOOST_TEST(Ears::all().size() == 0u);
}

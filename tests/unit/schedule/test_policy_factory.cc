// Policies by name; errors are one line with variable, value and what is allowed.
#define BOOST_TEST_MODULE schedule_policy_factory
#include <boost/test/unit_test.hpp>

#include "schedule/schedule_fixture.h"

using namespace ucx_mp::schedule;

namespace {
std::string error(std::string_view text, unsigned n_paths = 0) {
    const PolicyChoice choice = make_policy(text, "UCX_MP_POLICY", n_paths);
    BOOST_TEST(!choice.config.has_value());
    BOOST_TEST(choice.error.find('\n') == std::string::npos);
    return choice.error;
}
} // namespace

BOOST_AUTO_TEST_CASE(every_name_is_known_and_comes_back) {
    for (unsigned k = 0; k < kPolicyKinds; ++k) {
        const auto kind = static_cast<PolicyKind>(k);
        const PolicyChoice choice = make_policy(name(kind));
        BOOST_TEST_REQUIRE(choice.config.has_value());
        BOOST_TEST(int(choice.config->kind) == int(kind));
        BOOST_TEST(policy_help().find(std::string(name(kind))) != std::string::npos);
    }
    BOOST_TEST(int(make_policy("hsam").config->kind) == int(PolicyKind::adaptive));
}

BOOST_AUTO_TEST_CASE(parameters_with_units) {
    const PolicyChoice bss = make_policy("bss:n_paths=12,n_batch=3,alpha=0.9,min_stripe=8K");
    BOOST_TEST_REQUIRE(bss.config.has_value());
    BOOST_TEST(bss.config->n_paths == 12u);
    BOOST_TEST(bss.config->n_batch == 3u);
    BOOST_TEST(bss.config->alpha == 0.9);
    BOOST_TEST(bss.config->min_stripe == 8192u);
    BOOST_TEST(make_policy("bss").config->alpha == 0.75);
    BOOST_TEST(make_policy("spray:chunk_time=50us,max_chunk=4M").config->chunk_time == 50000.0);
    BOOST_TEST(make_policy("window_rr:window=7,").config->window == 7u);
}

BOOST_AUTO_TEST_CASE(weights_of_rails) {
    const PolicyConfig plain = *make_policy("weighted").config, learned = *make_policy("adaptive").config;
    BOOST_TEST(plain.n_weights == 0u);
    BOOST_TEST(plain.weight(1, 2, 6.5) == 6.5); // a path's rate
    BOOST_TEST(learned.weight(1, 2, 6.5) == 1.0);
    BOOST_TEST(make_policy("weighted:weights=rates").config->n_weights == 0u);
    for (const char* const text : {"weighted:weights=3,1", "weighted:weights=3,1,", "weighted_rr:weights=3,1",
                                   "weighted:weights=3,1,min_stripe=8K", "weighted:min_stripe=8K,weights=3,1"}) {
        BOOST_TEST_INFO(text);
        const PolicyChoice choice = make_policy(text);
        BOOST_TEST_REQUIRE(choice.error == "");
        const PolicyConfig& config = *choice.config;
        BOOST_TEST(config.n_weights == 2u);
        BOOST_TEST(config.min_stripe ==
                   (std::string(text).ends_with("K") || std::string(text).find("8K,") != std::string::npos
                        ? 8192u
                        : PolicyConfig{}.min_stripe));
        BOOST_TEST(config.weight(0, 1, 6.5) == 3.0);
        BOOST_TEST(config.weight(0, 4, 6.5) == 0.75); // four routes share it
        BOOST_TEST(config.weight(1, 1, 6.5) == 1.0);
        BOOST_TEST(config.weight(2, 1, 6.5) == 0.0);
        BOOST_TEST(check_weights(config, 2) == "");
        BOOST_TEST(check_weights(config, 3) == "2 weights are not allowed; allowed: 3, one for each rail in use");
    }
    BOOST_TEST(check_weights(plain, 3) == "");
    BOOST_TEST(make_policy("weighted:weights=0,2.5").config->weight(1, 1, 1) == 2.5);
    const std::string sixteen = "weighted:weights=1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1";
    BOOST_TEST(make_policy(sixteen).config->n_weights == 16u);
    for (const std::string& bad :
         {sixteen + ",1", std::string("weighted:weights="), std::string("weighted:weights=3,x"),
          std::string("weighted:weights=-1,1"), std::string("weighted:weights=0,0"),
          std::string("weighted:weights=nan,1"), std::string("weighted:weights=2000000"),
          std::string("weighted_rr:weights=3 1"), std::string("weighted:weights=3K,1")}) {
        const std::string value = bad.substr(bad.find('=') + 1);
        BOOST_TEST(error(bad) == "UCX_MP_POLICY=" + bad + ": weights = '" + value +
                                     "' is not allowed; allowed: rates, or for each rail a number from 0 to 1000000, "
                                     "not all 0");
    }
    BOOST_TEST(error("adaptive:weights=3,1").find("adaptive has no parameter 'weights'") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(errors_say_what_is_allowed) {
    BOOST_TEST(error("fastest") ==
               "UCX_MP_POLICY=fastest: unknown policy 'fastest'; allowed: default, binding, round_robin, weighted_rr, "
               "window_rr, even, weighted, adaptive, bss, epc, load_balanced, spray");
    BOOST_TEST(error("bss:n_batch=0") == "UCX_MP_POLICY=bss:n_batch=0: n_batch = '0' is not allowed; allowed: 1 to 64");
    BOOST_TEST(error("bss:n_paths=4,n_batch=5") ==
               "UCX_MP_POLICY=bss:n_paths=4,n_batch=5: n_batch = 5 is not allowed; allowed: 1 to n_paths (4)");
    BOOST_TEST(error("bss:n_paths=9", 8) ==
               "UCX_MP_POLICY=bss:n_paths=9: n_paths = 9 is not allowed; allowed: 1 to 8, the number of paths");
    BOOST_TEST(error("window_rr:alpha=1") ==
               "UCX_MP_POLICY=window_rr:alpha=1: window_rr has no parameter 'alpha'; allowed: window");
    BOOST_TEST(error("binding:window=2") ==
               "UCX_MP_POLICY=binding:window=2: binding takes no parameters, got 'window'");
    BOOST_TEST(error("even:alignment=96") ==
               "UCX_MP_POLICY=even:alignment=96: alignment = 96 is not allowed; allowed: powers of two");
    BOOST_TEST(error("adaptive:alpha=1.5") ==
               "UCX_MP_POLICY=adaptive:alpha=1.5: alpha = '1.5' is not allowed; allowed: 0 to 1");
    BOOST_TEST(error("spray:chunk_time=5h") ==
               "UCX_MP_POLICY=spray:chunk_time=5h: chunk_time = '5h' is not allowed; allowed: 1ns to 1s");
    for (const char* bad : {"", ":", "bss:n_batch", "bss:n_batch=", "bss:n_batch=x", "bss:n_batch=1.5",
                            "bss:n_batch=-1", "bss:n_batch=1e99", "adaptive:alpha=nan", "even:min_stripe=8Q",
                            "even:min_stripe=32", "spray:min_chunk=2M", "bss:,", "even:=1", "EVEN"}) {
        BOOST_TEST_INFO(bad);
        BOOST_TEST(!error(bad).empty());
    }
}

// Policies by name; errors are one line with variable, value and what is allowed.
#define BOOST_TEST_MODULE schedule_policy_factory
#include <boost/test/unit_test.hpp>

#include <algorithm>

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

BOOST_AUTO_TEST_CASE(units) {
    const auto bytes = [](const std::string& text) {
        return make_policy("even:stripe_threshold=" + text).config->stripe_threshold;
    };
    BOOST_TEST(bytes("700") == 700u);
    BOOST_TEST(bytes("700B") == 700u);
    BOOST_TEST(bytes("3K") == 3072u);
    BOOST_TEST(bytes("1.5K") == 1536u);
    BOOST_TEST(bytes("3M") == 3u << 20);
    BOOST_TEST(bytes("1G") == 1u << 30);
    const auto nanos = [](const std::string& text) {
        return make_policy("epc:probe_interval=" + text).config->probe_interval;
    };
    BOOST_TEST(nanos("7") == 7.0);
    BOOST_TEST(nanos("7.5ns") == 7.5);
    BOOST_TEST(nanos("7us") == 7e3);
    BOOST_TEST(nanos("7ms") == 7e6);
    BOOST_TEST(nanos("7s") == 7e9);
}

// Each has a range, which its error message tells; both ends belong to it.
BOOST_AUTO_TEST_CASE(ranges) {
    struct Range {
        const char *policy, *name, *below, *least, *most, *above, *allowed;
    };
    for (const Range& range : {
             Range{"even", "alignment", "0", "1", "1M", "2M", "1 to 1M"},
             Range{"even", "min_stripe", "0", "1", "64M", "65M", "1 to 64M"},
             Range{"even", "stripe_threshold", "0", "1", "1G", "1025M", "1 to 1G"},
             Range{"even", "one_sided_threshold", "0", "1", "1G", "1025M", "1 to 1G"},
             Range{"even", "window", "0", "1", "65536", "65537", "1 to 65536"},
             Range{"default", "lane_slack", "-1", "0", "1s", "1.1s", "0ns to 1s"},
             Range{"adaptive", "alpha", "-0.1", "0", "1", "1.1", "0 to 1"},
             Range{"bss", "n_paths", "0", "1", "64", "65", "1 to 64"},
             Range{"bss", "n_batch", "0", "1", "64", "65", "1 to 64"},
             Range{"bss", "explore", "-1", "0", "1000000", "1000001", "0 to 1000000"},
             Range{"load_balanced", "accounts", "0", "1", "2", "3", "1 to 2"},
             Range{"spray", "chunk_time", "0.9ns", "1ns", "1s", "1.1s", "1ns to 1s"},
             Range{"spray", "min_chunk", "63", "64", "64M", "65M", "64 to 64M"},
             Range{"spray", "max_chunk", "63", "64", "1G", "1025M", "64 to 1G"},
             Range{"spray", "window_chunks", "0.9", "1", "64", "64.5", "1 to 64"},
             Range{"default", "pull_threshold", "0", "1", "1G", "1025M", "1 to 1G"},
             Range{"default", "descriptor_cost", "-1", "0", "1s", "1.1s", "0ns to 1s"},
             Range{"epc", "probe_interval", "-1", "0", "1000s", "1001s", "0ns to 1000s"},
         }) {
        const std::string key = std::string(range.policy) + ":" + range.name + "=";
        const auto refusal = [&](const std::string& value) {
            return "UCX_MP_POLICY=" + key + value + ": " + range.name + " = '" + value +
                   "' is not allowed; allowed: " + range.allowed;
        };
        for (const char* const bad : {range.below, range.above}) BOOST_TEST(error(key + bad) == refusal(bad));
        for (const char* const good : {range.least, range.most}) // another parameter may not go with it
            BOOST_TEST(make_policy(key + good, "UCX_MP_POLICY").error != refusal(good));
    }
}

BOOST_AUTO_TEST_CASE(parameters_that_do_not_go_together) {
    const auto wrong = [](const std::string& text, unsigned n_paths = 0) {
        const std::string error = make_policy(text, "P", n_paths).error;
        return error.empty() ? error : error.substr(("P=" + text + ": ").size());
    };
    BOOST_TEST(wrong("spray:alignment=8K,min_chunk=8K") ==
               "min_stripe = 4096 is not allowed; allowed: alignment (8192) or more");
    BOOST_TEST(wrong("default:alignment=8K,min_stripe=8K,min_chunk=8K,max_chunk=8K") == "");
    BOOST_TEST(wrong("default:alignment=8K,min_stripe=8K,min_chunk=4K") ==
               "min_chunk = 4096 is not allowed; allowed: alignment (8192) or more");
    BOOST_TEST(wrong("spray:max_chunk=4K") == "max_chunk = 4096 is not allowed; allowed: min_chunk (8192) or more");
    BOOST_TEST(wrong("bss:n_paths=8,n_batch=8", 8) == "");
    BOOST_TEST(wrong("bss:n_paths=1") == "n_batch = 2 is not allowed; allowed: 1 to n_paths (1)");
    BOOST_TEST(wrong("bss:n_batch=3", 2) == "n_batch = 3 is not allowed; allowed: 1 to n_paths (2)");
    BOOST_TEST(wrong("bss:n_batch=2", 2) == "");
    BOOST_TEST(wrong("bss:n_batch=64") == "");
    BOOST_TEST(wrong("bss", 1) == ""); // by default it is two, or all
    BOOST_TEST(wrong("even", 1) == "");
}

BOOST_AUTO_TEST_CASE(help_shows_the_defaults) {
    const std::string help = policy_help();
    BOOST_TEST(std::count(help.begin(), help.end(), '\n') == kPolicyKinds);
    for (const char* const line :
         {"\nbinding\n", "\nweighted_rr: weights=rates\n", "\nwindow_rr: window=32\n",
          "\nweighted: alignment=64, min_stripe=4K, stripe_threshold=16K, one_sided_threshold=8K, window=32, "
          "weights=rates\n",
          "\nbss: alignment=64, min_stripe=4K, stripe_threshold=16K, one_sided_threshold=8K, window=32, alpha=0.75, "
          "n_paths=all, n_batch=2, explore=32\n",
          "\nspray: alignment=64, stripe_threshold=16K, one_sided_threshold=8K, window=32, chunk_time=64us, "
          "min_chunk=8K, max_chunk=1M, window_chunks=2, probe_interval=25ms\n"})
        BOOST_TEST(help.find(line) != std::string::npos, line);
    BOOST_TEST(help.find("lane_slack=1us") != std::string::npos);
    BOOST_TEST(help.find("descriptor_cost=100ns") != std::string::npos);
    BOOST_TEST(help.find("pull_threshold=512K") != std::string::npos);
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

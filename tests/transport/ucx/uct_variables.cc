// The user's variables: how many there are, what they say of themselves, and whether it is true.
//
// A user sees what `ucx_info -c -f` lists. Every name there counts, those of mp_rc and mp_dc apart, and UCX's own in
// our tables as well. Only what is called internal tuning does not.
#define BOOST_TEST_MODULE transport_uct_variables
#include "uct_mp/ucx/variables.h"

#include <cstdio>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <ucx_mp_places.h>

#include "fixture.h"
#include "uct_mp/ucx/abi/layout.h"
#include "uct_mp/ucx/config.h"

using namespace ucx_mp;
using namespace uct_test;

namespace {

constexpr unsigned kMostForUsers = 27;
const std::string kTuning = face::heading(face::Group::tuning);

struct Listed {
    std::string name, help; // the whole name; lines of the help joined by blanks
    [[nodiscard]] bool tuning() const { return help.starts_with(kTuning); }
};

// What ucx_info prints of ours, in its order.
std::vector<Listed> listed() {
    char* text = nullptr;
    std::size_t size = 0;
    std::FILE* const stream = open_memstream(&text, &size);
    ucs_config_parser_print_all_opts(
        stream, UCS_DEFAULT_ENV_PREFIX,
        static_cast<ucs_config_print_flags_t>(UCS_CONFIG_PRINT_CONFIG | UCS_CONFIG_PRINT_HEADER | UCS_CONFIG_PRINT_DOC),
        &ucs_config_global_list);
    std::fclose(stream);
    std::istringstream lines(text);
    std::free(text);
    std::vector<Listed> out;
    std::string help;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("#")) {
            const std::size_t at = line.find_first_not_of("# ");
            if (at != std::string::npos) help += (help.empty() ? "" : " ") + line.substr(at);
            continue;
        }
        if (line.starts_with("UCX_MP_")) out.push_back({line.substr(0, line.find('=')), help});
        help.clear();
    }
    return out;
}

// All variables with their prefixes.
std::vector<std::pair<std::string, const face::Variable*>> described() {
    std::vector<std::pair<std::string, const face::Variable*>> out;
    for (const auto& v : face::domain_variables()) out.emplace_back(std::string("UCX_MP_") + v.name, &v);
    for (const auto& v : face::transport_variables(connect::Transport::rc))
        out.emplace_back(std::string("UCX_MP_RC_") + v.name, &v);
    for (const auto& v : face::transport_variables(connect::Transport::dc))
        out.emplace_back(std::string("UCX_MP_DC_") + v.name, &v);
    return out;
}

// What the core is told when a user sets these variables ("RC_SL=3"), and what the user is told.
struct Told : face::Said {
    channel::Config config;
    face::DomainOptions domain;
};
template <class Handle, class Read> void set_and_read(Handle* config, const Options& options, const Read& read) {
    for (const auto& [name, value] : options) BOOST_TEST_REQUIRE(modify(config, name, value) == UCS_OK);
    read(face::abi::options_of(*config));
    uct_config_release(config);
}
Told domain(const Options& options = {}) {
    Told out;
    uct_md_config_t* config = nullptr;
    BOOST_TEST_REQUIRE(uct_md_config_read(component(), nullptr, nullptr, &config) == UCS_OK);
    set_and_read(config, options,
                 [&](const face::MdOptions& parsed) { (void)face::read_options(parsed, out.domain, out.config, out); });
    return out;
}
// `of_domain`: what its memory domain has been told.
Told transport(connect::Transport which, const Options& options = {}, const Options& of_domain = {}) {
    const Domain open;
    Told out;
    out.config = domain(of_domain).config;
    out.config.transport = which;
    uct_iface_config_t* config = nullptr;
    BOOST_TEST_REQUIRE(uct_md_iface_config_read(open.md, connect::name(which), nullptr, nullptr, &config) == UCS_OK);
    set_and_read(config, options,
                 [&](const face::IfaceOptions& parsed) { (void)face::read_options(parsed, out.config, out); });
    return out;
}
Told told(const std::string& name, const Options& options) {
    if (name.starts_with("UCX_MP_DC_")) return transport(connect::Transport::dc, options);
    if (name.starts_with("UCX_MP_RC_")) return transport(connect::Transport::rc, options);
    return domain(options);
}

// Where a variable's value is in the core's configuration, as text. What nobody in the core knows has no entry: its
// default stands in variables.cc alone.
using Value = std::string (*)(const channel::Config&);
#define UCT_TEST_VALUE(member) [](const channel::Config& c) { return std::to_string(static_cast<long>(c.member)); }
const std::map<std::string, Value> kDomainValues = {
    {"NUM_PATHS", UCT_TEST_VALUE(paths.num_paths)},
    {"PATH_BITS",
     [](const channel::Config& c) { return std::string(c.paths.path_bits.begin(), c.paths.path_bits.end()); }},
    {"CROSS_RAILS", UCT_TEST_VALUE(paths.cross_rails)},
    {"SPLIT_READS", UCT_TEST_VALUE(paths.split_reads)},
    {"POLICY", UCT_TEST_VALUE(policy.kind)},
    {"ATOMICS", UCT_TEST_VALUE(atomics)},
    {"READ_BACK", UCT_TEST_VALUE(read_back)},
    {"RECOVERY", UCT_TEST_VALUE(recovery.enabled)},
    {"WATCH_INTERVAL", UCT_TEST_VALUE(recovery.watch_interval)},
    {"HOLD_DOWN", UCT_TEST_VALUE(recovery.hold_down)},
    {"PARTITION_TIMEOUT", UCT_TEST_VALUE(recovery.partition_timeout)},
    {"REOPEN_INTERVAL",
     [](const channel::Config& c) {
         return std::to_string(c.recovery.reopen_interval) + " to " + std::to_string(c.recovery.max_reopen_interval);
     }},
    {"APM", UCT_TEST_VALUE(apm)},
    {"PROTOCOL",
     [](const channel::Config& c) { return std::to_string(c.min_version) + " to " + std::to_string(c.max_version); }},
    {"FEATURES", UCT_TEST_VALUE(features)},
    {"PACKET_NUMBERS", UCT_TEST_VALUE(recovery.packet_numbers)},
};
const std::map<std::string, Value> kTransportValues = {
    {"TIMEOUT", UCT_TEST_VALUE(reliability.timeout)},
    {"RETRY_COUNT", UCT_TEST_VALUE(reliability.retry_count)},
    {"RNR_TIMEOUT", UCT_TEST_VALUE(reliability.min_rnr_timer)},
    {"MAX_RD_ATOMIC", UCT_TEST_VALUE(reliability.max_rd_atomic)},
    {"SL", UCT_TEST_VALUE(reliability.service_level)},
    {"MAX_CONN", UCT_TEST_VALUE(max_connections)},
    {"VICTIM", UCT_TEST_VALUE(victims)},
    {"MAX_UNUSED", UCT_TEST_VALUE(max_unused)},
    {"CONNECT_TIMEOUT", UCT_TEST_VALUE(connect_timeout)},
    {"SEG_SIZE", UCT_TEST_VALUE(segment)},
    {"MAX_INLINE", UCT_TEST_VALUE(inline_bytes)},
    {"TX_QUEUE_LEN", UCT_TEST_VALUE(send_depth)},
    {"TX_CQ_LEN", UCT_TEST_VALUE(completion_depth)},
    {"RX_QUEUE_LEN", UCT_TEST_VALUE(receive_depth)},
    {"TX_WINDOW", UCT_TEST_VALUE(window)},
    {"TX_MAX_BUFS", UCT_TEST_VALUE(max_send_buffers)},
    {"TX_SIGNAL_INTERVAL", UCT_TEST_VALUE(signal_interval)},
    {"POLL_BATCH", UCT_TEST_VALUE(poll_batch)},
    {"NUM_DCI", UCT_TEST_VALUE(dci_count)},
    {"NUM_DCT", UCT_TEST_VALUE(dct_count)},
    {"DCI_POLICY", UCT_TEST_VALUE(dci_policy)},
    {"ADAPT", UCT_TEST_VALUE(adapt.mode)},
    {"ADAPT_INTERVAL", UCT_TEST_VALUE(adapt.tuning.interval)},
    {"ADAPT_MAX_RC", UCT_TEST_VALUE(adapt.max_rc)},
    {"ADAPT_POOL", UCT_TEST_VALUE(adapt.pool)},
    {"ADAPT_MAX_RINGS", UCT_TEST_VALUE(adapt.max_rings)},
    {"ADAPT_GAIN", UCT_TEST_VALUE(adapt.tuning.least_gain)},
    {"ADAPT_COSTS", UCT_TEST_VALUE(adapt.measured)},
};
const std::set<std::string> kNotInTheCore = {
    "RAILS", "PKEY", "TASKS", "RCACHE", "FORK_INIT", "PORT_TIMEOUT", "MEM_REG_OVERHEAD", "MEM_REG_GROWTH"};

void compare(const std::vector<face::Variable>& variables, const std::map<std::string, Value>& values,
             const channel::Config& parsed) {
    const channel::Config fresh;
    for (const face::Variable& variable : variables) {
        BOOST_TEST_CONTEXT(variable.name) {
            if (kNotInTheCore.contains(variable.name)) continue;
            if (variable.name == std::string("ADAPT")) continue; // a core has DC alone, unless it is told: `adaptation`
            if (variable.name == std::string("RECOVERY_THREAD")) continue; // ... and no thread
            const auto value = values.find(variable.name);
            BOOST_TEST_REQUIRE((value != values.end()), "a variable without a value to compare");
            BOOST_TEST(value->second(parsed) == value->second(fresh));
        }
    }
}

} // namespace

BOOST_AUTO_TEST_CASE(users_see_few_and_those_first) {
    std::set<std::string> for_users;
    bool tuning = false;
    std::string table;
    for (const Listed& variable : listed()) {
        BOOST_TEST_CONTEXT(variable.name) {
            const std::string of = variable.name.substr(0, std::string("UCX_MP_RC_").size());
            const std::string prefix = of == "UCX_MP_RC_" || of == "UCX_MP_DC_" ? of : "UCX_MP_";
            if (std::exchange(table, prefix) != prefix) tuning = false; // the next table
            BOOST_TEST((!tuning || variable.tuning()), "a user's variable behind internal tuning");
            tuning = variable.tuning();
            if (!tuning) for_users.insert(variable.name);
        }
    }
    BOOST_TEST_MESSAGE(for_users.size() << " variables for users");
    BOOST_TEST(for_users.size() <= kMostForUsers);
    BOOST_TEST(for_users.size() >= 10u); // they were found
}

BOOST_AUTO_TEST_CASE(every_variable_is_listed_and_explained) {
    std::map<std::string, std::string> help;
    for (const Listed& variable : listed()) help[variable.name] = variable.help;
    for (const auto& [name, variable] : described()) {
        BOOST_TEST_CONTEXT(name) {
            BOOST_TEST_REQUIRE(help.contains(name));
            BOOST_TEST(help[name].starts_with(face::heading(variable->group)));
            for (std::istringstream lines(variable->help); lines;) {
                std::string line;
                std::getline(lines, line);
                BOOST_TEST(line.size() <= 110u);
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(defaults_are_the_cores) {
    const Told of_domain = domain();
    BOOST_TEST(of_domain.error == "");
    BOOST_TEST(of_domain.domain.devices.rails.empty());
    compare(face::domain_variables(), kDomainValues, of_domain.config);
    for (const auto which : {connect::Transport::rc, connect::Transport::dc}) {
        const Told of_transport = transport(which);
        BOOST_TEST(of_transport.error == "");
        compare(face::transport_variables(which), kTransportValues, of_transport.config);
    }
}

// A default-constructed policy is what the name alone chooses, and what the help text says of its parameters.
BOOST_AUTO_TEST_CASE(a_policys_defaults_are_the_cores) {
    const auto all = face::domain_variables();
    const auto policy =
        std::ranges::find_if(all, [](const face::Variable& v) { return std::string(v.name) == "POLICY"; });
    BOOST_TEST_REQUIRE((policy != all.end()));
    std::string text = std::regex_replace(policy->help, std::regex("\\s+"), " ");
    std::smatch match;
    BOOST_TEST_REQUIRE(std::regex_search(text, match, std::regex(" default: (.*?) binding ")));
    const std::string list = std::regex_replace(match[1].str(), std::regex(", "), ",");
    const std::string with_all = "default:" + list;
    const Told named = domain({{"POLICY", "default"}}), listed = domain({{"POLICY", with_all.c_str()}});
    BOOST_TEST(listed.error == "");
    const schedule::PolicyConfig &a = named.config.policy, &b = listed.config.policy, fresh;
    for (const schedule::PolicyConfig* other : {&b, &fresh}) {
        BOOST_TEST(a.alignment == other->alignment);
        BOOST_TEST(a.min_stripe == other->min_stripe);
        BOOST_TEST(a.stripe_threshold == other->stripe_threshold);
        BOOST_TEST(a.one_sided_threshold == other->one_sided_threshold);
        BOOST_TEST(a.window == other->window);
        BOOST_TEST(a.lane_slack == other->lane_slack);
        BOOST_TEST(a.chunk_time == other->chunk_time);
        BOOST_TEST(a.min_chunk == other->min_chunk);
        BOOST_TEST(a.max_chunk == other->max_chunk);
        BOOST_TEST(a.window_chunks == other->window_chunks);
        BOOST_TEST(a.pull_threshold == other->pull_threshold);
        BOOST_TEST(a.descriptor_cost == other->descriptor_cost);
        BOOST_TEST(a.probe_interval == other->probe_interval);
    }
}

// "1 to 64" in a help text: both are taken, and what is next to them is not.
BOOST_AUTO_TEST_CASE(ranges_in_help_texts_are_true) {
    unsigned tried = 0;
    for (const auto& [name, variable] : described()) {
        std::smatch match;
        if (!std::regex_search(variable->help, match, std::regex("\\b(\\d+) to (\\d+)\\b"))) continue;
        BOOST_TEST_CONTEXT(name << ", " << match[0]) {
            ++tried;
            const long min = std::stol(match[1]), max = std::stol(match[2]);
            const auto accepted = [&, &name = name, &variable = variable](long value) {
                return told(name, {{variable->name, std::to_string(value).c_str()}}).error.empty();
            };
            BOOST_TEST(accepted(min));
            BOOST_TEST(accepted(max));
            if (min > 0) BOOST_TEST(!accepted(min - 1));
            BOOST_TEST(!accepted(max + 1));
        }
    }
    BOOST_TEST(tried >= 5u);
    for (const char* taken : {"10us", "655.36ms"}) BOOST_TEST(told("UCX_MP_RC_", {{"RNR_TIMEOUT", taken}}).error == "");
    for (const char* refused : {"9us", "656ms"}) BOOST_TEST(told("UCX_MP_RC_", {{"RNR_TIMEOUT", refused}}).error != "");
}

// A line that complains has what was typed, whatever a number of that size looks like.
BOOST_AUTO_TEST_CASE(complaints_show_what_was_typed) {
    const struct {
        const char *prefix, *name;
        std::vector<const char*> values;
        const char* allowed;
    } wrong[] = {
        {"UCX_MP_RC_", "MAX_CONN", {"-1", "-2", "auto", "AUTO", "0", "7x", "99999999999999999999"}, "1 to 1048576"},
        {"UCX_MP_DC_", "MAX_CONN", {"-1", "-2", "auto", "4294967297"}, "1 to 1048576"},
        {"UCX_MP_RC_", "TX_MAX_BUFS", {"-1", "auto"}, "64 to 4294967295"},
        {"UCX_MP_RC_", "TX_WINDOW", {"-1", "4294967295", "4294967360"}, "16 to 32768"},
        {"UCX_MP_RC_", "SEG_SIZE", {"-1", "-8k", "2m", "inf"}, "512 to 1048576"},
        {"UCX_MP_RC_", "TIMEOUT", {"-1", "-1s", "1h"}, "4.096us to 8796.09s"},
        {"UCX_MP_DC_", "NUM_DCI", {"-1"}, "1 to 64"},
        {"UCX_MP_DC_", "ADAPT_GAIN", {"-1ns"}, "0ns to 1s"},
        {"UCX_MP_", "NUM_PATHS", {"-2", "inf"}, "1 to 32"},
        {"UCX_MP_", "PATH_BITS", {"-1", "128"}, "0 to 127"},
        {"UCX_MP_", "FEATURES", {"-1", "auto"}, "0 to 18446744073709551615"},
        {"UCX_MP_", "HOLD_DOWN", {"-1", "2m"}, "0ns to 60s"},
        {"UCX_MP_", "MEM_REG_GROWTH", {"-1"}, "0ns to 1s"},
    };
    for (const auto& each : wrong)
        for (const char* const value : each.values) {
            if (value == std::string("1h")) continue; // refused by UCX's own parser
            BOOST_TEST(told(each.prefix, {{each.name, value}}).error ==
                       std::string(each.prefix) + each.name + "=" + value + ": allowed is " + each.allowed);
        }
}

// What was asked for by name, and another variable switches off, is said; what nobody has named is not.
BOOST_AUTO_TEST_CASE(what_has_no_effect_is_said) {
    using Lines = std::vector<std::string>;
    const auto dc = [](const Options& options, const Options& of_domain = {}) {
        return transport(connect::Transport::dc, options, of_domain);
    };
    const auto same = [](const Told& told, const Lines& lines) {
        BOOST_TEST(told.error == "");
        BOOST_TEST(told.notes == lines, boost::test_tools::per_element());
    };
    const Options off = {{"RECOVERY", "n"}};
    same(domain(), {});
    same(domain(off), {});
    same(domain({{"RECOVERY", "n"}, {"APM", "try"}}), {"UCX_MP_APM=try has no effect: UCX_MP_RECOVERY=n"});
    same(domain({{"RECOVERY", "n"}, {"HOLD_DOWN", "1s"}}), {"UCX_MP_HOLD_DOWN=1s has no effect: UCX_MP_RECOVERY=n"});
    same(domain({{"RECOVERY", "n"}, {"RECOVERY_THREAD", "y"}}),
         {"UCX_MP_RECOVERY_THREAD=yes has no effect: UCX_MP_RECOVERY=n"});
    same(domain({{"APM", "yes"}, {"HOLD_DOWN", "1s"}}), {});
    for (const char* const insisted : {"APM", "PACKET_NUMBERS"})
        BOOST_TEST(domain({{"RECOVERY", "n"}, {insisted, "yes"}}).error ==
                   "UCX_MP_" + std::string(insisted) + "=yes: allowed is \"try\" or \"no\" with UCX_MP_RECOVERY=n");
    same(dc({}), {});
    same(dc({}, off), {});
    same(dc({{"ADAPT", "off"}}, off), {});
    same(dc({{"ADAPT_MAX_RINGS", "16"}}), {});
    same(dc({{"ADAPT_MAX_RINGS", "16"}}, off), {"UCX_MP_DC_ADAPT_MAX_RINGS=16 has no effect: UCX_MP_RECOVERY=n"});
    same(dc({{"ADAPT", "on"}}, off), {"UCX_MP_DC_ADAPT=on has no effect: UCX_MP_RECOVERY=n"});
    same(dc({{"ADAPT", "off"}, {"ADAPT_MAX_RINGS", "16"}, {"ADAPT_POOL", "3"}}),
         {"UCX_MP_DC_ADAPT_POOL=3 has no effect: UCX_MP_DC_ADAPT=off",
          "UCX_MP_DC_ADAPT_MAX_RINGS=16 has no effect: UCX_MP_DC_ADAPT=off"});
    same(dc({{"VICTIM", "lru"}}), {"UCX_MP_DC_VICTIM=lru has no effect: UCX_MP_DC_MAX_CONN=inf"});
    const Told limited = dc({{"VICTIM", "lru_m"}, {"MAX_CONN", "4"}});
    same(limited, {});
    BOOST_TEST((limited.config.victims == adapt::VictimPolicy::lru_m));
    same(dc({{"ADAPT_COSTS", "d=1,p=2,c=3,delta=4"}}),
         {"UCX_MP_DC_ADAPT_COSTS=d=1,p=2,c=3,delta=4 has no effect: of rings: UCX_MP_DC_ADAPT_MAX_RINGS=0"});
}

// Ours, or UCX's if ours is not set.
BOOST_AUTO_TEST_CASE(partitions) {
    const auto partition = [](const char* ours) { return domain({{"PKEY", ours}}).domain.devices.partition; };
    BOOST_TEST(domain().domain.devices.partition == 0u);
    BOOST_TEST(partition("auto") == 0u);
    BOOST_TEST(partition("0x8005") == 5u);
    BOOST_TEST(partition("5") == 5u);
    BOOST_TEST(partition("0xffff") == 0x7fffu);
    setenv("UCX_IB_PKEY", "0x7", 1);
    BOOST_TEST(domain().domain.devices.partition == 7u);
    BOOST_TEST(partition("0x8005") == 5u);
    setenv("UCX_IB_PKEY", "0x10000", 1);
    BOOST_TEST(domain().error ==
               "UCX_IB_PKEY=0x10000: allowed is auto, or a key from 0x1 to 0xffff that is not 0x8000");
    unsetenv("UCX_IB_PKEY");
    for (const char* const wrong : {"", "0", "0x8000", "-1", "65536", "0x80050", "5x", "full"})
        BOOST_TEST(domain({{"PKEY", wrong}}).error == "UCX_MP_PKEY=" + std::string(wrong) +
                                                          ": allowed is auto, or a key from 0x1 to 0xffff that is not "
                                                          "0x8000");
}

// RC by demand: measured costs, or both of the user's.
BOOST_AUTO_TEST_CASE(adaptation) {
    using Mode = channel::AdaptConfig::Mode;
    const auto dc = [](const Options& options) { return transport(connect::Transport::dc, options); };
    BOOST_TEST((dc({}).config.adapt.mode == Mode::eager));
    BOOST_TEST((dc({{"ADAPT", "off"}}).config.adapt.mode == Mode::off));
    BOOST_TEST((dc({{"ADAPT", "on"}}).config.adapt.mode == Mode::on));
    BOOST_TEST((dc({{"ADAPT", "eager"}}).config.adapt.mode == Mode::eager));
    const Told given = dc({{"ADAPT_COSTS", "rho=400000,r=150"}});
    BOOST_TEST(given.error == "");
    BOOST_TEST(!given.config.adapt.measured);
    BOOST_TEST(given.config.adapt.tuning.costs.rc == 150.0);
    BOOST_TEST(given.config.adapt.tuning.costs.make_rc == 400000.0);
    for (const char* wrong : {"", "r=1", "r=1,r=2", "r=1,rho=", "r=1,rho=x", "r=-1,rho=1", "r=1,rho=1e10",
                              "r=1,rho=nan", "r=1,rho=2,d=3", "d=1,p=1,c=1", "r=1,d=1,p=1,c=1,delta=1", "paper"})
        BOOST_TEST(dc({{"ADAPT_COSTS", wrong}}).error.starts_with(std::string("UCX_MP_DC_ADAPT_COSTS=") + wrong),
                   wrong);
    // Costs of rings are the user's, and the others measured beside them, or all are.
    const char* const rings = "d=100,p=10,c=300,delta=100000";
    const Told both = dc({{"ADAPT_MAX_RINGS", "8"}, {"ADAPT_COSTS", rings}});
    BOOST_TEST(both.error == "");
    BOOST_TEST(both.config.adapt.measured);
    BOOST_TEST(both.config.adapt.max_rings == 8u);
    BOOST_TEST(both.config.adapt.tuning.costs.ring == 100.0);
    BOOST_TEST(both.config.adapt.tuning.costs.make_ring == 100000.0);
    const Told all = dc({{"ADAPT_MAX_RINGS", "8"}, {"ADAPT_COSTS", "delta=4,c=3,p=2,d=1,r=5,rho=6"}});
    BOOST_TEST(all.error == "");
    BOOST_TEST(!all.config.adapt.measured);
    BOOST_TEST(all.config.adapt.tuning.costs.credit == 3.0);
    BOOST_TEST(!all.config.adapt.rings_measured);
    for (const char* without : {"measure", "r=1,rho=2"}) {
        const Told measured = dc({{"ADAPT_MAX_RINGS", "8"}, {"ADAPT_COSTS", without}});
        BOOST_TEST(measured.error == "");
        BOOST_TEST(measured.config.adapt.rings_measured);
        BOOST_TEST(measured.config.adapt.tuning.costs.ring == 0.0);
    }
}

// Other numbers that help texts name.
BOOST_AUTO_TEST_CASE(help_texts_name_the_cores_numbers) {
    const channel::RecoveryConfig recovery;
    BOOST_TEST(recovery.max_reopen_interval == 20 * recovery.reopen_interval); // REOPEN_INTERVAL: "twenty times"
    BOOST_TEST(recovery.max_hold_down == Nanos{60'000'000'000});               // HOLD_DOWN: "up to a minute"
    // A default that is named in words could become wrong; ucx_info shows it anyway.
    for (const auto& [name, variable] : described())
        if (name != "UCX_MP_POLICY")
            BOOST_TEST(!std::regex_search(variable->help, std::regex("\\bby default\\b|\\bdefault is\\b|\\(default")),
                       name);
}

// config/variables.md has tables of all variables, with their defaults.
BOOST_AUTO_TEST_CASE(the_page_has_them_all) {
    std::ifstream file(UCX_MP_SOURCE_DIR "/config/variables.md");
    BOOST_TEST_REQUIRE(file.good());
    std::map<std::string, std::string> rows, tuning;
    bool internal = false;
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("## ")) internal = line.find("internal tuning") != std::string::npos;
        std::smatch match;
        if (!std::regex_search(line, match, std::regex("^\\| `(UCX_MP_\\w+)`[^|]*\\| (?:`([^`|]*)`)? *\\|"))) continue;
        BOOST_TEST((internal ? tuning : rows).emplace(match[1], match[2]).second, match[1] << " stands there twice");
    }
    // One row for the two transports.
    std::set<std::string> known;
    for (const auto& [name, variable] : described()) {
        const std::string row = std::regex_replace(name, std::regex("^UCX_MP_DC_(?!NUM_DC|DCI_|ADAPT)"), "UCX_MP_RC_");
        const auto& table = variable->group == face::Group::tuning ? tuning : rows;
        known.insert(row);
        BOOST_TEST_CONTEXT(name) {
            BOOST_TEST_REQUIRE(table.contains(row));
            BOOST_TEST(table.at(row) == variable->initial);
        }
    }
    for (const auto& table : {rows, tuning})
        for (const auto& [row, initial] : table) BOOST_TEST(known.contains(row), row);
}

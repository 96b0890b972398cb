#include "bound.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <set>

namespace ucx_mp::sim {

namespace {

using Route = std::vector<std::uint32_t>; // links
using Routes = std::vector<Route>;

// The links from a port to a LID, by the switches' tables. Empty: none, for the adapter's own loop-back and in a
// crossbar, or no way.
Route route(const softhca::FabricImage& image, std::uint32_t source, std::uint32_t lid) {
    const softhca::PortImage& from = image.port(source);
    if (image.port_of_lid(from.subnet, lid) == source) return {};
    Route out;
    for (std::uint32_t link = from.link; link != softhca::kNone && out.size() < softhca::kMaxHops;) {
        out.push_back(link);
        if (image.link(link).to_kind == softhca::EndKind::port) return out;
        link = image.next_link(image.link(link).to, lid);
    }
    return {};
}

// Of one rank: {peer's node: routes there}, each once. LIDs that lead over the same links are one route.
std::map<unsigned, Routes> routes_of(Cluster& cluster, unsigned rank, unsigned host) {
    const softhca::FabricImage& image = cluster.world.image();
    channel::Interface::Statistics statistics;
    cluster.node(rank).iface().statistics(statistics);
    std::map<unsigned, std::set<Route>> found;
    for (const channel::ChannelStatistics& channel : statistics.channels)
        for (const channel::PathStatistics& path : channel.paths) {
            unsigned device = 0, number = 0;
            if (std::sscanf(path.local_rail.c_str(), "softhca_%u:%u", &device, &number) != 2) continue;
            const softhca::DeviceImage& adapter = image.device(image.node(host).first_device + device);
            const std::uint32_t port = adapter.first_port + number - 1;
            const std::uint32_t to = image.port_of_lid(image.port(port).subnet, path.remote_lid);
            if (to == softhca::kNone) continue;
            found[image.device(image.port(to).device).node].insert(route(image, port, path.remote_lid));
        }
    std::map<unsigned, Routes> out;
    for (const auto& [node, routes] : found) out[node] = {routes.begin(), routes.end()};
    return out;
}

struct Flow {
    const Routes* routes;
    double bytes;
};

// By duality: whatever the prices of links are, all flows need at least (the sum of their bytes times the price of
// their cheapest route) / (the sum of the links' rates times their prices). Prices follow from how full the links would
// be if each flow had always taken its cheapest route, one after the other; the best of many prices is within a percent
// or two.
class LeastTime {
public:
    explicit LeastTime(const softhca::sim::World& world) : load_(world.image().links), price_(world.image().links) {
        const softhca::FabricImage& image = world.image();
        double wire =
            std::numeric_limits<double>::infinity(); // bytes there per byte of payload, the least of all ports
        for (std::uint32_t i = 0; i < image.ports; ++i) {
            const double mtu = 128u << image.port(i).mtu;
            wire = std::min(wire, 1 + image.device(image.port(i).device).limits.wire_header / mtu);
        }
        for (std::uint32_t i = 0; i < image.links; ++i)
            rate_.push_back(static_cast<double>(world.link_rate(i)) / 1e9 / wire);
    }
    double operator()(const std::vector<Flow>& flows) { // ns
        std::fill(load_.begin(), load_.end(), 0);
        used_.clear();
        for (const Flow& f : flows)
            for (const Route& r : *f.routes)
                for (const std::uint32_t link : r) {
                    price_[link] = rate_[link] > 0 ? 1 / rate_[link] : 0;
                    if (rate_[link] > 0) used_.insert(link);
                }
        double best = 0, worst = std::numeric_limits<double>::infinity();
        for (unsigned turn = 1; turn <= kMostTurns && best < kNear * worst; ++turn) {
            best = std::max(best, needed(flows));
            for (const Flow& f : flows) {
                if (f.routes->empty()) continue;
                const Route* way = &f.routes->front();
                for (const Route& r : *f.routes)
                    if (price(r) < price(*way)) way = &r;
                for (const std::uint32_t link : *way) load_[link] += f.bytes;
                if (turn > 1) set_prices(*way);
            }
            fullest_ = 0;
            for (const std::uint32_t link : used_) fullest_ = std::max(fullest_, load_[link] / rate_[link]);
            set_prices(used_);
            worst = std::min(worst, fullest_ / turn);
        }
        return best;
    }

private:
    static constexpr unsigned kMostTurns = 300;
    static constexpr double kNear = 0.99, kSteep = 60;

    template <class Links> void set_prices(const Links& links) {
        for (const std::uint32_t link : links)
            if (rate_[link] > 0 && fullest_ > 0)
                price_[link] = std::exp(kSteep * (load_[link] / rate_[link] / fullest_ - 1)) / rate_[link];
    }
    [[nodiscard]] double price(const Route& route) const {
        double sum = 0;
        for (const std::uint32_t link : route) sum += price_[link];
        return sum;
    }
    [[nodiscard]] double needed(const std::vector<Flow>& flows) const {
        double prices = 0, cheapest = 0;
        for (const std::uint32_t link : used_) prices += price_[link] * rate_[link];
        for (const Flow& f : flows) {
            double least = f.routes->empty() ? 0 : std::numeric_limits<double>::infinity();
            for (const Route& r : *f.routes) least = std::min(least, price(r));
            cheapest += f.bytes * least;
        }
        return prices > 0 ? cheapest / prices : 0;
    }

    // By link; rate: bytes of payload per ns, 0: it carries anything.
    std::vector<double> rate_, load_, price_;
    std::set<std::uint32_t> used_;
    double fullest_ = 0; // ns, after all turns up to now
};

// us of the busiest process. A write and a read have a completion; a message from a completion queue is a receive.
double busiest(const softhca::sim::HostCosts& costs, const Job& job, std::uint64_t eager, Rendezvous rendezvous) {
    const Nanos receive = costs.receive != 0 ? costs.receive : costs.completion, move = costs.post + costs.completion;
    std::vector<Nanos> spent(job.size());
    for (std::size_t i = 0; i < job.size(); ++i)
        for (const Step& s : job[i]) switch (s.kind) {
            case Step::Kind::send:
            case Step::Kind::sync: // a message, and what goes before it by rendezvous
                if (s.kind == Step::Kind::send && s.amount > eager) {
                    spent[rendezvous == Rendezvous::get ? s.peer : i] += move;
                    if (rendezvous == Rendezvous::get) spent[s.peer] += costs.post, spent[i] += receive; // it finishes
                }
                spent[i] += costs.post;
                spent[s.peer] += receive;
                break;
            case Step::Kind::get:
            case Step::Kind::put:
            case Step::Kind::add:
                spent[i] += move;
                break;
            case Step::Kind::compute:
                spent[i] += s.amount;
                break;
            case Step::Kind::wait:
            case Step::Kind::complete:
            case Step::Kind::meet:
                break;
            }
    return static_cast<double>(*std::max_element(spent.begin(), spent.end())) / 1e3;
}

} // namespace

Bound bound_of(Cluster& cluster, const Job& job, const std::vector<unsigned>& hosts, std::uint64_t eager,
               Rendezvous rendezvous) {
    std::vector<std::map<unsigned, Routes>> routes;
    for (unsigned i = 0; i < job.size(); ++i) routes.push_back(routes_of(cluster, i, hosts[i]));
    std::vector<std::vector<Flow>> steps;
    std::map<std::pair<unsigned, unsigned>, double> all; // by rank and node of who gets it: the routes are the same
    for (unsigned i = 0; i < job.size(); ++i) {
        std::size_t step = 0;
        for (const Step& s : job[i]) {
            step += s.kind == Step::Kind::complete;
            const bool there = s.kind == Step::Kind::send || s.kind == Step::Kind::put;
            if (!there && s.kind != Step::Kind::get) continue;
            const std::pair<unsigned, unsigned> way = there ? std::pair(i, hosts[s.peer]) : std::pair(s.peer, hosts[i]);
            if (steps.size() <= step) steps.resize(step + 1);
            steps[step].push_back({&routes[way.first][way.second], static_cast<double>(s.amount)});
            all[way] += static_cast<double>(s.amount);
        }
    }
    LeastTime least(cluster.world);
    Bound out;
    for (const std::vector<Flow>& flows : steps) out.in_order += least(flows) / 1e3;
    std::vector<Flow> together;
    for (const auto& [way, bytes] : all) together.push_back({&routes[way.first][way.second], bytes});
    out.at_once = least(together) / 1e3;
    out.processors = busiest(cluster.world.host_costs(), job, eager, rendezvous);
    return out;
}

} // namespace ucx_mp::sim

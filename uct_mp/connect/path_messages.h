// News of single paths: carried here, understood by uct_mp/recover.
#pragma once

#include "uct_mp/connect/datagrams.h"
#include "uct_mp/connect/message.h"

namespace ucx_mp::connect {

class PathMessages {
public:
    explicit PathMessages(Plane& plane) : plane_(plane) {}
    void tell(const Connection& connection, NewsKind kind, const PathNews& news, unsigned attempt);
    bool tell_over_route(const Connection& connection, const path::PathSpec& route, NewsKind kind,
                         const PathNews& news); // false: there is no room now
    void on_path_news(const Target& way_back, const Message& m);

private:
    [[nodiscard]] Message news_to(const Connection& c, NewsKind kind, const PathNews& news) const;

    Plane& plane_;
};

} // namespace ucx_mp::connect

// What depends on the version of UCX: its tables of functions, its tables of variables, and functions whose signature
// has changed. Each other file of this folder provides it for one layout of UCX's structures. The classes Md, Iface and
// Ep beside this folder know no version.
#pragma once

#include "uct_mp/ucx/compat.h"

namespace ucx_mp::face {
class Md;
struct MdOptions;
struct IfaceOptions;
} // namespace ucx_mp::face

namespace ucx_mp::face::abi {

// Registers the component "mp" with its transports and variables, once.
void register_component();
// Another copy of the library has done so: it may be preloaded from one place and linked from another.
[[nodiscard]] bool registered_already();

// Our options among those that UCX has parsed.
[[nodiscard]] const MdOptions& options_of(const uct_md_config_t& config);
[[nodiscard]] const IfaceOptions& options_of(const uct_iface_config_t& config);

// What UCX calls of an interface.
[[nodiscard]] uct_iface_ops_t& interface_operations();
[[nodiscard]] uct_iface_internal_ops_t& internal_operations();

// A registration cache whose regions are `Region` objects (md.h), made and ended by `md`.
[[nodiscard]] ucs_status_t make_cache(Md& md, const uct_md_rcache_config_t& options, ucs_rcache_t** out);
[[nodiscard]] double cache_overhead(const uct_md_rcache_config_t& options); // s, of finding a region in it
// `flags`: of uct_md_mem_reg(), which make_region() gets.
[[nodiscard]] ucs_status_t find_in_cache(ucs_rcache_t* cache, void* address, std::size_t length, unsigned flags,
                                         ucs_rcache_region_t** out);

} // namespace ucx_mp::face::abi

// SOFTHCA_MEMLOCK: how much memory a process may register.
#define BOOST_TEST_MODULE softhca_core_locked
#include "core/locked.h"

#include <boost/test/unit_test.hpp>

using softhca::read_locked_limit;

BOOST_AUTO_TEST_CASE(sizes) {
    for (const char* none : {static_cast<const char*>(nullptr), "", "n"})
        BOOST_TEST(read_locked_limit(none).value() == UINT64_MAX);
    BOOST_TEST(read_locked_limit("60M").value() == 60u << 20);
    BOOST_TEST(read_locked_limit("60000K").value() == 60000u << 10);
    BOOST_TEST(read_locked_limit("2G").value() == uint64_t{2} << 30);
    BOOST_TEST(read_locked_limit("4096").value() == 4096u);
    BOOST_TEST(read_locked_limit("y").has_value());
}

BOOST_AUTO_TEST_CASE(rubbish) {
    for (const char* text : {"60X", "M", "yes", "-1", "60 M", "60MiB", "1.5G", "99999999999G", "18446744073709551616"})
        BOOST_TEST(!read_locked_limit(text));
}

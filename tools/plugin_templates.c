/* SPDX-License-Identifier: MIT */
/* The files of new plugins. meson.build makes the bytes of each file of tools/templates/. */
#include "plugin_templates.h"

static const unsigned char algorithm_plugin_c[] = {
#include "algorithm_plugin_c.inc"
};
static const unsigned char algorithm_plugin_cc[] = {
#include "algorithm_plugin_cc.inc"
};
static const unsigned char algorithm_plugin_rs[] = {
#include "algorithm_plugin_rs.inc"
};
static const unsigned char algorithm_test_c[] = {
#include "algorithm_test_c.inc"
};
static const unsigned char algorithm_example_yaml[] = {
#include "algorithm_example_yaml.inc"
};
static const unsigned char algorithm_readme_md[] = {
#include "algorithm_readme_md.inc"
};
static const unsigned char balancer_plugin_c[] = {
#include "balancer_plugin_c.inc"
};
static const unsigned char balancer_plugin_cc[] = {
#include "balancer_plugin_cc.inc"
};
static const unsigned char balancer_plugin_rs[] = {
#include "balancer_plugin_rs.inc"
};
static const unsigned char balancer_test_c[] = {
#include "balancer_test_c.inc"
};
static const unsigned char balancer_example_yaml[] = {
#include "balancer_example_yaml.inc"
};
static const unsigned char balancer_readme_md[] = {
#include "balancer_readme_md.inc"
};
static const unsigned char c_makefile[] = {
#include "c_makefile.inc"
};
static const unsigned char c_gitignore[] = {
#include "c_gitignore.inc"
};
static const unsigned char cpp_makefile[] = {
#include "cpp_makefile.inc"
};
static const unsigned char rust_makefile[] = {
#include "rust_makefile.inc"
};
static const unsigned char rust_gitignore[] = {
#include "rust_gitignore.inc"
};
static const unsigned char rust_cargo_toml[] = {
#include "rust_cargo_toml.inc"
};
static const unsigned char rust_weir_rs[] = {
#include "rust_weir_rs.inc"
};
static const unsigned char rust_layout_c[] = {
#include "rust_layout_c.inc"
};
static const unsigned char rust_layout_rs[] = {
#include "rust_layout_rs.inc"
};

#define ANY_KIND     (TEMPLATE_ALGORITHM | TEMPLATE_BALANCER)
#define ANY_LANGUAGE (TEMPLATE_C | TEMPLATE_CPP | TEMPLATE_RUST)

#define TEMPLATE(file, kinds, languages, bytes)                                                    \
    {                                                                                              \
        file, kinds, languages, bytes, sizeof(bytes)                                               \
    }

const struct plugin_template plugin_templates[] = {
    TEMPLATE("plugin.c", TEMPLATE_ALGORITHM, TEMPLATE_C, algorithm_plugin_c),
    TEMPLATE("plugin.cc", TEMPLATE_ALGORITHM, TEMPLATE_CPP, algorithm_plugin_cc),
    TEMPLATE("plugin.rs", TEMPLATE_ALGORITHM, TEMPLATE_RUST, algorithm_plugin_rs),
    TEMPLATE("test.c", TEMPLATE_ALGORITHM, ANY_LANGUAGE, algorithm_test_c),
    TEMPLATE("example.yaml", TEMPLATE_ALGORITHM, ANY_LANGUAGE, algorithm_example_yaml),
    TEMPLATE("README.md", TEMPLATE_ALGORITHM, ANY_LANGUAGE, algorithm_readme_md),
    TEMPLATE("plugin.c", TEMPLATE_BALANCER, TEMPLATE_C, balancer_plugin_c),
    TEMPLATE("plugin.cc", TEMPLATE_BALANCER, TEMPLATE_CPP, balancer_plugin_cc),
    TEMPLATE("plugin.rs", TEMPLATE_BALANCER, TEMPLATE_RUST, balancer_plugin_rs),
    TEMPLATE("test.c", TEMPLATE_BALANCER, ANY_LANGUAGE, balancer_test_c),
    TEMPLATE("example.yaml", TEMPLATE_BALANCER, ANY_LANGUAGE, balancer_example_yaml),
    TEMPLATE("README.md", TEMPLATE_BALANCER, ANY_LANGUAGE, balancer_readme_md),
    TEMPLATE("Makefile", ANY_KIND, TEMPLATE_C, c_makefile),
    TEMPLATE("Makefile", ANY_KIND, TEMPLATE_CPP, cpp_makefile),
    TEMPLATE("Makefile", ANY_KIND, TEMPLATE_RUST, rust_makefile),
    TEMPLATE(".gitignore", ANY_KIND, TEMPLATE_C | TEMPLATE_CPP, c_gitignore),
    TEMPLATE(".gitignore", ANY_KIND, TEMPLATE_RUST, rust_gitignore),
    TEMPLATE("Cargo.toml", ANY_KIND, TEMPLATE_RUST, rust_cargo_toml),
    TEMPLATE("weir.rs", ANY_KIND, TEMPLATE_RUST, rust_weir_rs),
    TEMPLATE("layout.c", ANY_KIND, TEMPLATE_RUST, rust_layout_c),
    TEMPLATE("layout.rs", ANY_KIND, TEMPLATE_RUST, rust_layout_rs),
};
const size_t plugin_templates_n = sizeof(plugin_templates) / sizeof(plugin_templates[0]);

/* SPDX-License-Identifier: MIT */
/* Plugin files that do harm when they are loaded: LOADED says what. */
#include <signal.h>
#include <unistd.h>
#include <weir/plugin.h>

__attribute__((constructor)) static void loaded(void)
{
    LOADED;
}

static const struct weir_plugin *const plugins[1];

const struct weir_plugin_table weir_plugins_v1 = {
    .size = sizeof(weir_plugins_v1),
    .abi_minor = WEIR_PLUGIN_ABI_MINOR,
    .plugins_n = 1,
    .plugins = plugins,
};

/* SPDX-License-Identifier: MIT */
/* A holder or waiter of a snapshot as JSON. */
#include "snapshot_json.h"

void snapshot_json_holder(struct json *json, const struct snapshot_set *set,
                          const struct snapshot_holder *holder)
{
    json_object(json, NULL);
    if (holder->holder.waiting)
        json_number(json, "position", holder->holder.position);
    json_number(json, "process", holder->holder.process);
    json_number(json, "thread", holder->holder.thread);
    json_text(json, "command", holder->name[0] != '\0' ? holder->name : NULL);
    json_text(json, "command_line", holder->has_command_line ? holder->command_line : NULL);
    json_number(json, "since_ns", holder->holder.since_ns);
    json_number(json, "age_ns", holder->age_ns);
    if (holder->overheld < set->limits_n) {
        json_text(json, "overheld", set->limits[holder->overheld].key);
        json_number(json, "overheld_ns", holder->overheld_ns);
    }
    json_object(json, "amounts");
    for (size_t i = 0; i < set->limits_n; i++)
        if (holder->amounts[i] != 0 && snapshot_is_first_of_key(set, i))
            json_number(json, set->limits[i].key, holder->amounts[i]);
    json_end_object(json);
    json_end_object(json);
}

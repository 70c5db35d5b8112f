#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The periods of the algorithm `calendar` begin when those of Python's zoneinfo do: zones of all kinds,
by day, week and month, past all their changes.

    test_calendar.py PROGRAM

WEIR_OPERATIONS: how many days, of each zone; the zones are all that there are if it is above 100000.
"""

import datetime
import os
import subprocess
import sys
import unittest
import zoneinfo

PROGRAM = sys.argv[1]
DAYS = int(os.environ.get("WEIR_OPERATIONS", "2400"))
# Half an hour, a quarter and three; at midnight, in Ramadan, below UTC, over the date line; without a
# change since 1970, and by rule alone.
ZONES = ["UTC", "Europe/Berlin", "Europe/Dublin", "America/New_York", "America/St_Johns", "America/Havana",
         "America/Sao_Paulo", "America/Asuncion", "Africa/Casablanca", "Africa/Cairo", "Asia/Beirut",
         "Asia/Gaza", "Asia/Kathmandu", "Asia/Tehran", "Australia/Lord_Howe", "Pacific/Apia",
         "Pacific/Chatham", "Antarctica/Troll", "Etc/GMT+12", "EST5EDT"]
HOUR, DAY = 3600, 86400
EPOCH = datetime.date(1970, 1, 1)


class Zone:
    """A zone, by Python."""

    def __init__(self, name):
        self.zone = zoneinfo.ZoneInfo(name)

    def local(self, at):
        """The local time of an instant, in seconds."""
        utc = datetime.datetime.fromtimestamp(at, datetime.timezone.utc)
        return at + int(utc.astimezone(self.zone).utcoffset().total_seconds())

    def first_at(self, local):
        """The first instant at which the local time is this one or later."""
        naive = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=local)
        at = int(naive.replace(tzinfo=self.zone).timestamp())
        if self.local(at - 1) < local <= self.local(at) and self.local(at - HOUR) == self.local(at) - HOUR:
            return at
        # A change is near: look at each second after the last hour that is before.
        early = at - 30 * HOUR
        while self.local(early + HOUR) < local:
            early += HOUR
        while self.local(early) < local:
            early += 60 if self.local(early + 59) < local and self.local(early + 60) - self.local(early) == 60 else 1
        return early


def first_days(period, first, last):
    """The first days of periods, in a range of days."""
    for day in range(first, last):
        date = EPOCH + datetime.timedelta(days=day)
        if period == "day" or (period == "week" and date.weekday() == 0) or \
                (period == "month" and date.day == 1):
            yield day


def expected(zone, period, begin, end):
    starts = {zone.first_at(day * DAY) for day in first_days(period, begin // DAY - 1, end // DAY + 2)}
    return sorted(start for start in starts if begin < start <= end)


class Calendar(unittest.TestCase):
    def compare(self, name, period, begin, end):
        done = subprocess.run([PROGRAM, name, period, str(begin), str(end)], stdout=subprocess.PIPE,
                              text=True, check=True)
        said = [line for line in done.stdout.splitlines()]
        self.assertEqual(said, [str(start) for start in expected(Zone(name), period, begin, end)],
                         (name, period))

    def test_periods_begin_when_those_of_python_do(self):
        zones = sorted(zoneinfo.available_timezones()) if DAYS > 100000 else ZONES
        for number, name in enumerate(zones):
            # Another quarter of the time for each, so that all of it is looked at.
            begin = (400 + number % 4 * 9000) * DAY
            with self.subTest(zone=name):
                self.compare(name, "day", begin, begin + min(DAYS // len(zones) * 4, 60000) * DAY)
                self.compare(name, "week", begin, begin + min(DAYS // 4, 60000) * DAY)
                self.compare(name, "month", begin, begin + min(DAYS, 60000) * DAY)

    def test_the_days_of_a_change(self):
        """By day, around each change of the offset of a few years."""
        for name in ZONES:
            zone = Zone(name)
            for year in (1996, 2011):
                begin = (datetime.date(year, 1, 1) - EPOCH).days
                for day in range(begin, begin + 365):
                    if zone.local((day + 1) * DAY) - zone.local(day * DAY) != DAY:
                        with self.subTest(zone=name, day=day):
                            self.compare(name, "day", (day - 3) * DAY, (day + 4) * DAY)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

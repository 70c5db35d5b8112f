#!/bin/sh
# SPDX-License-Identifier: MIT
# What the limit would have refused of the requests of one client: 400 in a minute. With the log of a
# server its name takes the place of the load, and the field of the client that of the subject.
set -eu
weir simulate --mode try --load even:400/1m:1m --subject uniform:1 | grep 'would have'

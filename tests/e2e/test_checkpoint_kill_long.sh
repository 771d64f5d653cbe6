#!/bin/sh
# LONG
# TIMEOUT: 3600
# Fifty kills during saves.
set -u
KILLS=50
. tests/e2e/kill_saves.sh

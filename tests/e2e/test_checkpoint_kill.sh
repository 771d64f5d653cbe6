#!/bin/sh
# A few kills during saves; test_checkpoint_kill_long.sh has fifty.
set -u
KILLS=3
. tests/e2e/kill_saves.sh

/* Time. */
#pragma once

/* Seconds on a clock that never jumps; the zero is arbitrary.  Local. */
double clock_now_s(void);

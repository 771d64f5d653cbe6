/* Stopping: what a signal leaves time for.
 * RUN: -n 1 */
#include "check.h"
#include "train/stop.h"

#include <signal.h>
#include <stdlib.h>

int main(void)
{
    struct stop s;
    stop_install();
    stop_init(&s, 0);
    TEST ("nothing asks to stop, and a save has all the time there is") {
        CHECK(!stop_wanted(&s) && stop_grace_s(&s) > 1e6);
    }
    TEST ("a save fits if the last one did with half as much again in hand") {
        CHECK(stop_save_fits(1, 0.6) && !stop_save_fits(1, 0.7));
        CHECK(stop_save_fits(0, 0) && !stop_save_fits(-0.1, 0));
        CHECK(stop_save_fits(1, -1) && !stop_save_fits(0.4, -1));
        CHECK(stop_save_fits(1e9, 1e8));
    }
    TEST ("USR1 leaves all the time, TERM a second under mpirun and half a minute under Slurm") {
        raise(SIGUSR1);
        CHECK(stop_wanted(&s) && stop_grace_s(&s) > 1e6);
        CHECK_STR(stop_reason(&s), "SIGUSR1");
        stop_init(&s, 0);
        setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
        raise(SIGTERM);
        CHECK(stop_wanted(&s) && stop_grace_s(&s) <= 1);
        CHECK_STR(stop_reason(&s), "SIGTERM");
        unsetenv("OMPI_COMM_WORLD_SIZE");
        CHECK(stop_grace_s(&s) > 1 && stop_grace_s(&s) <= 30);
    }
    TEST ("a time limit") {
        stop_init(&s, 1e-9);
        CHECK(stop_wanted(&s));
    }
    return check_done();
}

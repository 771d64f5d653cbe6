/* Checks for test programs: TAP on standard output, one line a test.
 *
 *     TEST("what is proved") { CHECK(x == 1); CHECK_NEAR(a, b, 1e-6); }
 *     return check_done();
 *
 * On several ranks only rank 0 prints (the test sets check_rank); failures print everywhere. */
#pragma once
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int check_rank, check_n, check_bad, check_bad_here;
static const char *check_name;

static inline void check_end(void)
{
    if (!check_name)
        return;
    check_n++;
    if (check_bad_here)
        check_bad++;
    if (check_rank == 0)
        printf("%s %d - %s\n", check_bad_here ? "not ok" : "ok", check_n, check_name);
    fflush(stdout);
    check_name = NULL;
}

static inline int check_begin(const char *name)
{
    check_end();
    check_name = name;
    check_bad_here = 0;
    return 1;
}

#define TEST(name) for (int once_ = check_begin(name); once_; once_ = (check_end(), 0))

__attribute__((format(printf, 4, 5))) static inline void check_that(bool ok, const char *file,
                                                                    int line, const char *fmt, ...)
{
    if (ok)
        return;
    if (check_bad_here++ < 10) {
        va_list ap;
        va_start(ap, fmt);
        printf("# rank %d %s:%d: ", check_rank, file, line);
        vprintf(fmt, ap);
        printf("\n");
        va_end(ap);
    }
}

#define CHECK(cond) check_that((cond), __FILE__, __LINE__, "%s", #cond)
#define CHECK_NEAR(a, b, tol)                                                                      \
    do {                                                                                           \
        double a_ = (double)(a), b_ = (double)(b);                                                 \
        check_that(fabs(a_ - b_) <= (tol), __FILE__, __LINE__, "%s = %.9g, %s = %.9g", #a, a_, #b, \
                   b_);                                                                            \
    } while (0)
#define CHECK_STR(a, b)                                                                            \
    do {                                                                                           \
        const char *s_ = (a), *t_ = (b);                                                           \
        check_that(s_ &&t_ &&strcmp(s_, t_) == 0, __FILE__, __LINE__, "%s = \"%s\", not \"%s\"",   \
                   #a, s_ ? s_ : "(null)", t_ ? t_ : "(null)");                                    \
    } while (0)
/* text contains part */
#define CHECK_HAS(text, part)                                                                      \
    do {                                                                                           \
        const char *s_ = (text), *t_ = (part);                                                     \
        check_that(strstr(s_, t_) != NULL, __FILE__, __LINE__, "\"%s\" lacks \"%s\"", s_, t_);     \
    } while (0)

static inline int check_done(void)
{
    check_end();
    if (check_rank == 0)
        printf("1..%d\n", check_n);
    return check_bad ? 1 : 0;
}

# Makes linear.csv: 320 rows of ten inputs x0 ... x9, uniform in [-1, 1), and two targets
#     a = sum over i of (i + 1) / 10 x_i + 0.5 + noise        b = x0 - x9 - 0.25 + noise
# with uniform noise of variance 0.01.  The generator is written out, so that every awk makes the
# same bytes:  awk -f jobs/data/make_linear.awk > jobs/data/linear.csv

# Park and Miller's minimal standard generator: exact in a double.
function uniform() {
    seed = (seed * 16807) % 2147483647
    return 2 * seed / 2147483647 - 1
}

BEGIN {
    seed = 1813
    for (i = 0; i < 10; i++)
        printf "x%d,", i
    print "a,b"
    for (row = 0; row < 320; row++) {
        a = 0.5
        for (i = 0; i < 10; i++) {
            x[i] = uniform()
            a += (i + 1) / 10 * x[i]
            printf "%.4f,", x[i]
        }
        b = x[0] - x[9] - 0.25
        printf "%.4f,%.4f\n", a + uniform() * sqrt(0.03), b + uniform() * sqrt(0.03)
    }
}

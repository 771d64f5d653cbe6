/* Jobs: includes, overrides, expansion, checks against kinds, reading, the resolved echo. */
/* RUN: -n 1 */
#include "job/job.h"

#include "base/file.h"
#include "check.h"
#include <stdlib.h>
#include <unistd.h>

struct job_conf {
    const char *name;
    int64_t seed;
};
struct model_conf {
    int type;
    const char *path, *plugin;
    double lr;
};
struct gpt_conf {
    int64_t n_layer, n_head;
    struct opt_f64s rates;
};
struct mlp_conf {
    struct opt_i64s hidden;
};
struct plugin_conf {
    int64_t stage;
    bool enabled;
};

static const struct opt job_opts[] = {
    STR(job_conf, name, NULL, "name"),
    I64(job_conf, seed, "1337", 0, INFINITY, "seed"),
    {.type = OPT_END},
};
static const char *const families[] = {"gpt2", "mlp", NULL};
static const struct opt model_opts[] = {
    ENUM(model_conf, type, "gpt2", families, "family"),
    STR_PATH(model_conf, path, NULL, "weights"),
    STR(model_conf, plugin, NULL, "plugin"),
    {.name = "lr",
     .aliases = "learning_rate max_lr",
     .type = OPT_F64,
     .offset = offsetof(struct model_conf, lr),
     .dflt = "1e-3",
     .max = 1,
     .help = "rate"},
    {.type = OPT_END},
};
static const struct opt gpt_opts[] = {
    I64(gpt_conf, n_layer, "12", 1, 1000, "blocks"),
    I64(gpt_conf, n_head, "12", 1, 1000, "heads"),
    F64S(gpt_conf, rates, "[0.9, 0.999]", 0, 1, "rates"),
    {.type = OPT_END},
};
static const struct opt mlp_opts[] = {
    I64S(mlp_conf, hidden, "128", 1, 65536, "sizes"),
    {.type = OPT_END},
};
static const struct opt plugin_opts[] = {
    I64_KEY("zero_optimization.stage", plugin_conf, stage, "2", 0, 3, "stage"),
    BOOL(plugin_conf, enabled, "true", "on"),
    {.type = OPT_END},
};
static const struct section_variant model_variants[] = {
    {"gpt2", gpt_opts},
    {"mlp", mlp_opts},
    {NULL, NULL},
};
static const struct section_kind job_kind = {.name = "job", .opts = job_opts, .help = "the run"};
static const struct section_kind model_kind = {.name = "model",
                                               .may_be_named = true,
                                               .opts = model_opts,
                                               .type_key = "type",
                                               .variants = model_variants,
                                               .help = "a model"};
static const struct section_kind plugin_kind = {
    .name = "plugin", .may_be_named = true, .opts = plugin_opts, .help = "a plugin"};
static const struct section_kind *const kinds[] = {&job_kind, &model_kind, &plugin_kind, NULL};

static int load(const char *text, int n, const char *const *overrides, struct arena *a,
                struct job **j)
{
    err_set(ERR_OK, "nothing");
    return job_parse("job.ini", text, strlen(text), n, overrides, kinds, a, j);
}

static int load_and_check(const char *text, const char *override, struct arena *a, struct job **j)
{
    TRY(load(text, override != NULL, &override, a, j));
    return job_check(*j, kinds);
}

static void check_refused(const char *text, const char *override, const char *message,
                          struct arena *a)
{
    struct job *j;
    int rc = load_and_check(text, override, a, &j);
    check_that(rc == ERR_USAGE && strcmp(err_text(), message) == 0, __FILE__, __LINE__,
               "%s: \"%s\"\n#   not \"%s\"", text, err_text(), message);
}

static void test_names(struct arena *a)
{
    static const struct {
        const char *text, *message;
    } row[] = {
        {"[modle]\nlr = 1\n", "job.ini:1: [modle]: no such section; did you mean [model]?"},
        {"[job]\n[modle.x]\n", "job.ini:2: [modle.x]: no such section; did you mean [model.x]?"},
        {"[zzzzzz]\n", "job.ini:1: [zzzzzz]: no such section; there are [job], [model], [plugin]"},
        {"[job.x]\n", "job.ini:1: [job.x]: [job] takes no name"},
        {"[plugin.full.zero_optimization]\nstage = 2\n",
         "job.ini:1: [plugin.full.zero_optimization]: a name has no dots; nested keys are written "
         "zero_optimization.KEY = VALUE in [plugin.full]"},
        {"[model]\nn_layre = 3\n",
         "job.ini:2: [model] n_layre = 3: no such key; did you mean n_layer?"},
        {"[model.x]\n\nleaning_rate = 3\n",
         "job.ini:3: [model.x] leaning_rate = 3: no such key; did you mean learning_rate?"},
        {"[model]\nseed = 3\n",
         "job.ini:2: [model] seed = 3: [model] has no such key; it belongs in [job]"},
        {"[job]\nn_head = 3\n",
         "job.ini:2: [job] n_head = 3: [job] has no such key; it belongs in [model]"},
        {"[model]\nhidden = 3\n",
         "job.ini:2: [model] hidden = 3: hidden belongs to type = mlp, and "
         "this is type = gpt2"},
        {"[model]\ntype = MLP\nn_head = 3\n", "job.ini:3: [model] n_head = 3: n_head belongs to "
                                              "type = gpt2, and this is type = MLP"},
        {"[model]\nn_head = 3\ntype = mpl\n",
         "job.ini:3: [model] type = mpl: must be one of: gpt2, mlp; did you mean mlp?"},
        {"[plugin.unused]\nzero_optimization.stage = 4\n",
         "job.ini:2: [plugin.unused] zero_optimization.stage = 4: must be an integer from 0 to 3"},
        {"[model]\nlr = 0.1\nmax_lr = 0.2\n", "job.ini:3: [model] max_lr = 0.2: line 2 sets the "
                                              "same key by another name: lr = 0.1"},
        {"[model]\nmax_lr = 0.1\nlearning_rate = 0.2\n",
         "job.ini:3: [model] learning_rate = 0.2: line 2 sets the same key by another name: "
         "max_lr = 0.1"},
        {"[model]\nlr = 010x\n", "job.ini:2: [model] lr = 010x: must be a number from 0 to 1"},
        {"lr = 1\n", "job.ini:1: lr stands before the first [section]"},
    };
    TEST ("unknown names, wrong places and wrong values are refused in words")
        for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
            check_refused(row[i].text, NULL, row[i].message, a);
    TEST ("a plain section may hold its own type's keys and those of its named sections' types") {
        struct job *j;
        CHECK(load_and_check("[model]\nhidden = 3\nn_head = 2\n[model.x]\ntype = mlp\n", NULL, a,
                             &j) == ERR_OK);
        CHECK(load_and_check("[model]\nlr = 0.1\nmax_lr = 0.1\n", NULL, a, &j) == ERR_OK);
        CHECK(load_and_check("[Model]\nN_Head = 2\nTYPE = GPT2\n", NULL, a, &j) == ERR_OK);
        check_refused("[model]\ntype = mlp\nn_head = 2\n[model.x]\nn_layer = 2\n", NULL,
                      "job.ini:3: [model] n_head = 2: n_head belongs to type = gpt2, and this is "
                      "type = mlp",
                      a);
    }
}

static void test_overrides(struct arena *a)
{
    static const char text[] = "[model]\nn_head = 2\n[model.big]\nn_head = 3\n[plugin.full]\n";
    static const struct {
        const char *override, *message;
    } row[] = {
        {"model.n_head", "command line: model.n_head: an override is section.key=value"},
        {"=3", "command line: =3: an override is section.key=value"},
        {"n_head=3", "command line: n_head=3: an override is section.key=value; did you mean "
                     "model.n_head?"},
        {"foo=3", "command line: foo=3: an override is section.key=value"},
        {"zero_optimization.stage=1",
         "command line: zero_optimization.stage=1: an override is section.key=value; did you mean "
         "plugin.zero_optimization.stage?"},
        {"modle.n_head=3",
         "command line: modle.n_head=3: [modle]: no such section; did you mean [model]?"},
        {"model.small.n_head=3",
         "command line: [model] small.n_head = 3: no such key, and the file has no section "
         "[model.small]"},
        {"model.n_hed=3", "command line: [model] n_hed = 3: no such key; did you mean n_head?"},
        {"model.n_head=x", "command line: [model] n_head = x: must be an integer from 1 to 1000"},
        {"model.=x", "command line: model.=x: an empty part before or behind a dot"},
        {"model.big=x", "command line: [model] big = x: [model] has no such key"},
        {"model:n_head=3",
         "command line: model:n_head=3: a : in a name; parts are joined with dots"},
        {"job.include=x", "command line: job.include=x: include stands in a file; on the command "
                          "line name the file itself"},
        {"job.name=a\nb", "command line: job.name=a b: the value holds a line break or another "
                          "control character"},
        {"job.name=$STRETTO_NO_SUCH",
         "command line: [job] name = $STRETTO_NO_SUCH: the environment "
         "has no variable STRETTO_NO_SUCH"},
    };
    TEST ("wrong overrides are refused in words")
        for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
            check_refused(text, row[i].override, row[i].message, a);
    TEST (
        "an override takes the longest section that fits, beats the file, and the later one wins") {
        static const char *const overrides[] = {
            "model.big.n_head=5",
            "model.n_head=7",
            "plugin.full.zero_optimization.stage=3",
            "model.n_head=8",
            "plugin.zero_optimization.stage=1",
            "job.name= a = b;c ",
            "model.max_lr=0.25",
            "model.lr=0.5",
        };
        struct job *j;
        CHECK(load(text, 8, overrides, a, &j) == ERR_OK);
        CHECK(job_check(j, kinds) == ERR_OK);
        CHECK_STR(job_value(j, "model.big", "n_head"), "5");
        CHECK_STR(job_value(j, "model", "n_head"), "8");
        CHECK_STR(job_value(j, "plugin.full", "zero_optimization.stage"), "3");
        CHECK_STR(job_value(j, "plugin", "zero_optimization.stage"), "1");
        CHECK_STR(job_value(j, "job", "name"), " a = b;c ");
        CHECK(job_value(j, "model.big", "n_layer") == NULL);
        CHECK(job_has_section(j, "plugin") && !job_has_section(j, "model.small"));
        struct model_conf m;
        CHECK(job_read(j, "model", NULL, model_opts, &m) == ERR_OK);
        CHECK(m.lr == 0.5);
        CHECK(load("[model]\nmax_lr = 0.1\n", 1, &(const char *){"model.lr=0.5"}, a, &j) == ERR_OK);
        CHECK(job_check(j, kinds) == ERR_OK);
        CHECK(job_read(j, "model", NULL, model_opts, &m) == ERR_OK && m.lr == 0.5);
    }
}

static void test_expansion(struct arena *a)
{
    static const struct {
        const char *raw, *value;
    } good[] = {
        {"$STRETTO_A/x", "alpha/x"},
        {"${STRETTO_A}x", "alphax"},
        {"\"$STRETTO_A $STRETTO_A\"", "alpha alpha"},
        {"a$$b", "a$b"},
        {"$$STRETTO_A", "$STRETTO_A"},
        {"~", "/h/me"},
        {"~/x", "/h/me/x"},
        {"~/x, ~/y,~/z", "/h/me/x, /h/me/y,/h/me/z"},
        {"[~/x]", "[/h/me/x]"},
        {"a~/x ~y", "a~/x ~y"},
        {"x/~", "x/~"},
        {"$STRETTO_TILDE", "/h/me/q"},
        {"$STRETTO_DOLLAR", "a$STRETTO_A"},
        {"$STRETTO_B;$STRETTO_B", NULL},
        {"'$STRETTO_B;'", "b c;"},
    };
    static const struct {
        const char *raw, *words;
    } bad[] = {
        {"$STRETTO_NO_SUCH", "the environment has no variable STRETTO_NO_SUCH"},
        {"a$", "$ begins a variable's name ($NAME or ${NAME}); write $$ for a dollar sign"},
        {"$1", "$ begins a variable's name ($NAME or ${NAME}); write $$ for a dollar sign"},
        {"${}", "$ begins a variable's name ($NAME or ${NAME}); write $$ for a dollar sign"},
        {"${STRETTO_A", "${STRETTO_A lacks its }"},
        {"${STRETTO_A-x}", "${STRETTO_A lacks its }"},
        {"~you/x", "~ stands for the own home folder only (~/...); write the whole path"},
        {"$STRETTO_EMPTY", "the value is empty once its variables are replaced"},
        {"$STRETTO_LINES", "once its variables are replaced, the value holds a line break or "
                           "another control character"},
    };
    setenv("STRETTO_A", "alpha", 1);
    setenv("STRETTO_B", "b c", 1);
    setenv("STRETTO_TILDE", "~/q", 1);
    setenv("STRETTO_DOLLAR", "a$STRETTO_A", 1);
    setenv("STRETTO_EMPTY", "", 1);
    setenv("STRETTO_LINES", "a\nb", 1);
    setenv("HOME", "/h/me", 1);
    TEST ("variables and ~ are expanded once, and the result can be written to a file again")
        for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
            char text[200];
            struct job *j, *again;
            snprintf(text, sizeof text, "[model]\nplugin = %s\n", good[i].raw);
            int rc = load(text, 0, NULL, a, &j);
            check_that((rc == ERR_OK) == (good[i].value != NULL), __FILE__, __LINE__, "%s: %s",
                       good[i].raw, err_text());
            if (rc != ERR_OK)
                continue;
            CHECK_STR(job_value(j, "model", "plugin"), good[i].value);
            struct model_conf m;
            struct text echo = {0};
            CHECK(job_read(j, "model", NULL, model_opts, &m) == ERR_OK);
            job_print_resolved(j, &echo);
            CHECK(load(echo.s, 0, NULL, a, &again) == ERR_OK);
            CHECK_STR(job_value(again, "model", "plugin"), good[i].value);
            text_clear(&echo);
        }
    TEST ("what cannot be expanded is refused in words")
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            char text[200], message[400];
            snprintf(text, sizeof text, "[job]\n[model]\nplugin = %s\n", bad[i].raw);
            snprintf(message, sizeof message, "job.ini:3: [model] plugin = %s: %s", bad[i].raw,
                     bad[i].words);
            check_refused(text, NULL, message, a);
        }
    TEST ("names are not expanded, and what an override hides needs no variables") {
        struct job *j;
        check_refused("[job]\n$A = 1\n", NULL,
                      "job.ini:2: key \"$A\": a name is made of letters, "
                      "digits, _, - and dots",
                      a);
        CHECK(load("[job]\nname = $STRETTO_NO_SUCH\n", 1, &(const char *){"job.name=x"}, a, &j) ==
              ERR_OK);
        CHECK_STR(job_value(j, "job", "name"), "x");
    }
}

static void test_reading(struct arena *a)
{
    static const char text[] = "[model]\nn_layer = 4\nlr = 0.5\n"
                               "[model.teacher]\nlr = 0.25\nrates = 0.5\n"
                               "[model.student]\nmax_lr = 0.125\ntype = mlp\n"
                               "[plugin.full]\n";
    struct job *j;
    struct model_conf m;
    struct gpt_conf g;
    struct plugin_conf p;
    TEST ("name section over plain section over default") {
        CHECK(load_and_check(text, NULL, a, &j) == ERR_OK);
        CHECK(job_read(j, "model", NULL, model_opts, &m) == ERR_OK && m.lr == 0.5);
        CHECK(job_read(j, "model", "teacher", model_opts, &m) == ERR_OK && m.lr == 0.25);
        CHECK(m.type == 0 && m.path == NULL);
        CHECK(job_read(j, "model", "teacher", gpt_opts, &g) == ERR_OK);
        CHECK(g.n_layer == 4 && g.n_head == 12 && g.rates.n == 1 && g.rates.v[0] == 0.5);
        CHECK(job_read(j, "model", "student", model_opts, &m) == ERR_OK);
        CHECK(m.lr == 0.125 && m.type == 1);
        CHECK(job_read(j, "plugin", "none", plugin_opts, &p) == ERR_OK && p.stage == 2 &&
              p.enabled);
        CHECK_STR(job_file(j), "job.ini");
    }
    TEST ("names in file order, and the sections that nobody read") {
        int n;
        const char *const *names = job_names(j, "model", &n);
        CHECK(n == 2);
        CHECK_STR(names[0], "teacher");
        CHECK_STR(names[1], "student");
        job_names(j, "mod", &n);
        CHECK(n == 0);
        names = job_unread(j, &n);
        CHECK(n == 1);
        CHECK_STR(names[0], "plugin.full");
    }
    TEST ("a required key that is missing, a value that does not parse") {
        const struct opt need[] = {
            {.name = "name", .type = OPT_STR, .flags = OPT_REQUIRED, .help = "x"},
            {.type = OPT_END},
        };
        const char *conf;
        CHECK(job_read(j, "job", NULL, need, &conf) == ERR_USAGE);
        CHECK_STR(err_text(),
                  "job.ini: [job] name is missing; it has no default and must be a text");
        CHECK(load("[model]\nlr = 1\n[model.x]\nlr = 2\n", 0, NULL, a, &j) == ERR_OK);
        CHECK(job_read(j, "model", "x", model_opts, &m) == ERR_USAGE);
        CHECK_STR(err_text(), "job.ini:4: [model.x] lr = 2: must be a number from 0 to 1");
    }
    TEST ("errors about a key name its place: its section, the plain one, an alias, a default") {
        CHECK(load("[model]\nn_head = 5\n[model.x]\nmax_lr = 0.5\n", 1,
                   &(const char *){"model.path=w.h5"}, a, &j) == ERR_OK);
        CHECK(job_read(j, "model", "x", model_opts, &m) == ERR_OK);
        CHECK(job_read(j, "model", "x", gpt_opts, &g) == ERR_OK);
        CHECK(job_error(j, "model", "x", "lr", "not %d", 3) == ERR_USAGE);
        CHECK_STR(err_text(), "job.ini:4: [model.x] max_lr = 0.5: not 3");
        job_error(j, "model", "x", "n_head", "no");
        CHECK_STR(err_text(), "job.ini:2: [model] n_head = 5: no");
        job_error(j, "model", NULL, "n_head", "no");
        CHECK_STR(err_text(), "job.ini:2: [model] n_head = 5: no");
        job_error(j, "model", "x", "n_layer", "no");
        CHECK_STR(err_text(), "job.ini: [model.x] n_layer = 12 (default): no");
        job_error(j, "model", "x", "path", "no");
        CHECK_STR(err_text(), "command line: [model] path = w.h5: no");
        job_error(j, "model", "x", "plugin", "no");
        CHECK_STR(err_text(), "job.ini: [model.x] plugin: no");
        job_error(j, "plugin", NULL, "enabled", "no");
        CHECK_STR(err_text(), "job.ini: [plugin] enabled: no");
        char value[700];
        memset(value, 'v', sizeof value);
        memcpy(value, "job.name=", 9);
        value[699] = 0;
        CHECK(load("[job]\n", 1, &(const char *){value}, a, &j) == ERR_OK);
        job_error(j, "job", NULL, "name", "too long");
        CHECK_HAS(err_text(), "vvv...: too long");
        CHECK(strlen(err_text()) < 260);
    }
}

/* Read everything that the test's kinds have from a job, in a fixed order. */
static int read_all(const struct job *j, struct text *echo)
{
    static const char *const who[] = {NULL, "a", "b"};
    struct job_conf jc;
    struct model_conf m;
    struct gpt_conf g;
    struct mlp_conf mlp;
    struct plugin_conf p;
    TRY(job_read(j, "job", NULL, job_opts, &jc));
    for (int i = 0; i < 3; i++) {
        TRY(job_read(j, "model", who[i], model_opts, &m));
        TRY(m.type == 0 ? job_read(j, "model", who[i], gpt_opts, &g)
                        : job_read(j, "model", who[i], mlp_opts, &mlp));
        TRY(job_read(j, "plugin", who[i], plugin_opts, &p));
        text_printf(echo, "# %s: type %d path %s plugin %s lr %a stage %d %d\n",
                    who[i] ? who[i] : "-", m.type, m.path ? m.path : "(null)",
                    m.plugin ? m.plugin : "(null)", m.lr, (int)p.stage, p.enabled);
    }
    job_print_resolved(j, echo);
    return ERR_OK;
}

static void test_resolved(struct arena *a)
{
    static const char text[] = "[job]\nname = \" a;b \"\n"
                               "[model]\npath = x y.h5 # weights\nlr = 0.3\nplugin = it's $$5\n"
                               "[model.a]\ntype = MLP\nhidden = [1 2,3]\nlr=1e-7\n"
                               "[model.b]\nn_head = 2\nplugin = \"\"\n"
                               "[plugin.a]\nenabled = off\n";
    TEST ("the resolved job has every key that was read, and reads back to the same") {
        struct job *j, *again;
        struct text first = {0}, second = {0};
        CHECK(load_and_check(text, "job.seed=7", a, &j) == ERR_OK);
        CHECK(read_all(j, &first) == ERR_OK);
        CHECK(load_and_check(first.s, NULL, a, &again) == ERR_OK);
        CHECK(read_all(again, &second) == ERR_OK);
        CHECK_STR(first.s, second.s);
        CHECK_HAS(first.s, "[job]\nname = \" a;b \"\nseed = 7\n\n[model]\ntype = gpt2\n"
                           "path = x y.h5\nplugin = it's $$5\nlr = 0.3\nn_layer = 12\n"
                           "n_head = 12\nrates = 0.9, 0.999\n\n[plugin]\n"
                           "zero_optimization.stage = 2\nenabled = true\n\n[model.a]\n");
        CHECK_HAS(first.s, "[model.a]\ntype = mlp\npath = x y.h5\nplugin = it's $$5\nlr = 1e-07\n"
                           "hidden = 1, 2, 3\n\n[plugin.a]\nzero_optimization.stage = 2\n"
                           "enabled = false\n\n[model.b]\n");
        CHECK_HAS(first.s, "plugin = \"\"\n");
        text_clear(&first);
        text_clear(&second);
        CHECK(load("[job]\n", 0, NULL, a, &j) == ERR_OK);
        struct job_conf jc;
        CHECK(job_read(j, "job", NULL, job_opts, &jc) == ERR_OK);
        job_print_resolved(j, &first);
        CHECK_STR(first.s, "[job]\n# name is not set\nseed = 1337\n");
        text_clear(&first);
    }
    TEST ("packed and unpacked it is the same job, errors included") {
        struct job *j;
        struct text first = {0}, second = {0};
        CHECK(load_and_check(text, "model.b.n_head=77", a, &j) == ERR_OK);
        char *bytes;
        size_t n_bytes;
        job_pack(j, &bytes, &n_bytes);
        struct job *other = job_unpack(bytes, n_bytes, a);
        free(bytes);
        CHECK(job_check(other, kinds) == ERR_OK);
        CHECK(read_all(j, &first) == ERR_OK && read_all(other, &second) == ERR_OK);
        CHECK_STR(first.s, second.s);
        job_error(other, "model", "a", "hidden", "no");
        CHECK_STR(err_text(), "job.ini:9: [model.a] hidden = [1 2,3]: no");
        job_error(other, "model", "b", "n_head", "no");
        CHECK_STR(err_text(), "command line: [model.b] n_head = 77: no");
        CHECK_STR(job_file(other), "job.ini");
        text_clear(&first);
        text_clear(&second);
    }
}

static void put(const char *name, const char *text)
{
    CHECK(file_write(name, text, strlen(text)) == ERR_OK);
}

static void test_files(struct arena *a)
{
    struct job *j;
    TEST ("included entries are defaults, paths are relative to the including file") {
        CHECK(file_make_dirs("sub/deep") == ERR_OK);
        put("main.ini", "[job]\ninclude = sub/base.ini\nname = main\n[model.x]\nlr = 0.5\n");
        put("sub/base.ini", "[job]\nname = base\nseed = 2\ninclude = \"deep/${STRETTO_A}.ini\"\n"
                            "[model.y]\nlr = 0.25\n[model.x]\nmax_lr = 0.125\nn_head = 3\n");
        put("sub/deep/alpha.ini", "[model.x]\nn_head = 4\nn_layer = 5\n[job]\nseed = $NONE_SUCH\n");
        CHECK(job_load("main.ini", 0, NULL, kinds, a, &j) == ERR_OK);
        CHECK(job_check(j, kinds) == ERR_OK);
        CHECK_STR(job_value(j, "job", "name"), "main");
        CHECK_STR(job_value(j, "job", "seed"), "2");
        CHECK(job_value(j, "job", "include") == NULL);
        CHECK_STR(job_value(j, "model.x", "n_head"), "3");
        CHECK_STR(job_value(j, "model.x", "n_layer"), "5");
        struct model_conf m;
        CHECK(job_read(j, "model", "x", model_opts, &m) == ERR_OK && m.lr == 0.5);
        job_error(j, "model", "x", "n_layer", "no");
        CHECK_STR(err_text(), "sub/deep/alpha.ini:3: [model.x] n_layer = 5: no");
        int n;
        const char *const *names = job_names(j, "model", &n);
        CHECK(n == 2);
        CHECK_STR(names[0], "x");
        CHECK_STR(names[1], "y");
    }
    TEST ("circles, depth and missing files are errors that name the line") {
        put("a.ini", "[job]\n\ninclude = sub/b.ini\n");
        put("sub/b.ini", "[job]\ninclude = ../a.ini\n");
        CHECK(job_load("a.ini", 0, NULL, kinds, a, &j) == ERR_USAGE);
        CHECK_STR(err_text(),
                  "sub/b.ini:2: [job] include = ../a.ini: sub/../a.ini includes itself, "
                  "in one or more steps");
        put("a.ini", "[job]\ninclude = none.ini\n");
        CHECK(job_load("a.ini", 0, NULL, kinds, a, &j) == ERR_USAGE);
        CHECK_STR(err_text(), "a.ini:2: [job] include = none.ini: cannot open none.ini: No such "
                              "file or directory");
        put("c9.ini", "[job]\nname = nine\n");
        for (int i = 0; i < 9; i++) {
            char name[32], text[64];
            snprintf(name, sizeof name, "c%d.ini", i);
            snprintf(text, sizeof text, "[job]\ninclude = c%d.ini\n", i + 1);
            put(name, text);
        }
        CHECK(job_load("c1.ini", 0, NULL, kinds, a, &j) == ERR_OK);
        CHECK_STR(job_value(j, "job", "name"), "nine");
        CHECK(job_load("c0.ini", 0, NULL, kinds, a, &j) == ERR_USAGE);
        CHECK_STR(err_text(),
                  "c8.ini:2: [job] include = c9.ini: includes are nested at most 8 deep");
    }
    TEST ("what is no file is refused at once") {
        CHECK(job_load("-", 0, NULL, kinds, a, &j) == ERR_USAGE);
        CHECK_STR(err_text(), "a job file is read by name, - (standard input) is not taken");
        CHECK(job_load("none.ini", 0, NULL, kinds, a, &j) == ERR_USAGE);
        CHECK_STR(err_text(), "cannot open job file none.ini: No such file or directory");
        CHECK(job_load("sub", 0, NULL, kinds, a, &j) == ERR_USAGE);
        CHECK_STR(err_text(), "sub is a folder, not a job file");
        CHECK(job_load("/dev/null", 0, NULL, kinds, a, &j) == ERR_USAGE);
        CHECK_STR(err_text(), "/dev/null is not a regular file");
        put("a.ini", "");
        CHECK(job_load("a.ini", 0, NULL, kinds, a, &j) == ERR_USAGE);
        CHECK_STR(err_text(), "a.ini: no sections; a job has at least [model] and [data]");
        CHECK(truncate("a.ini", 300000) == 0);
        CHECK(job_load("a.ini", 0, NULL, kinds, a, &j) == ERR_USAGE);
        CHECK_STR(err_text(), "a.ini is too large: 300000 bytes, at most 262144");
    }
}

static void test_kinds(struct arena *a)
{
    TEST ("sound kinds pass their check, broken ones do not") {
        CHECK(job_check_kinds(kinds, a) == ERR_OK);
        struct section_kind k = model_kind;
        const struct section_kind *const one[] = {&k, NULL}, *const two[] = {&k, &k, NULL};
        CHECK(job_check_kinds(two, a) == ERR_INTERNAL);
        CHECK_STR(err_text(), "kind [model] stands twice");
        k.type_key = "lr";
        CHECK(job_check_kinds(one, a) == ERR_INTERNAL);
        CHECK_STR(err_text(), "[model]: type key lr is no enum of its table");
        k.type_key = "type";
        const struct section_variant other[] = {{"cnn", NULL}, {NULL, NULL}};
        k.variants = other;
        CHECK(job_check_kinds(one, a) == ERR_INTERNAL);
        CHECK_STR(err_text(), "[model]: type cannot be cnn");
        const struct section_variant same[] = {{"mlp", model_opts}, {NULL, NULL}};
        k.variants = same;
        CHECK(job_check_kinds(one, a) == ERR_INTERNAL);
        CHECK_STR(err_text(), "[model]: type of mlp is a key of every type");
    }
    TEST ("a kind's help has its header, its keys and its types' keys") {
        struct text t = {0};
        job_help_kind(&model_kind, &t, a);
        CHECK_HAS(t.s,
                  "[model], [model.NAME]: a model\n  type = gpt2  family; one of: gpt2, mlp\n");
        CHECK_HAS(t.s, "\n with type = mlp:\n  hidden = 128  sizes; a list of integers from 1 to");
        text_clear(&t);
        job_help_kind(&job_kind, &t, a);
        CHECK_HAS(t.s, "[job]: the run\n  name         name; a text\n");
        text_clear(&t);
    }
}

int main(void)
{
    const char *tmp = getenv("TMPDIR");
    char dir[256];
    snprintf(dir, sizeof dir, "%s/stretto-job-XXXXXX", tmp ? tmp : "/tmp");
    struct arena *a = arena_create();
    test_names(a);
    test_overrides(a);
    test_expansion(a);
    test_reading(a);
    test_resolved(a);
    test_kinds(a);
    if (!mkdtemp(dir) || chdir(dir) != 0)
        return 1;
    test_files(a);
    if (chdir("/") != 0 || file_remove_tree(dir) != ERR_OK)
        return 1;
    arena_destroy(&a);
    return check_done();
}

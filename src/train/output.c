/* Only rank 0 looks, makes, moves; the others learn the outcome. */
#include "train/output.h"

#include "base/file.h"
#include "train/sections.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static int find_locally(const struct job *j, struct arena *a, const char **dir)
{
    struct job_conf main;
    struct ckpt_conf conf;
    struct stat st;
    *dir = NULL;
    TRY(job_read(j, "job", NULL, kind_job.opts, &main));
    TRY(job_read(j, "checkpoint", NULL, kind_checkpoint.opts, &conf));
    if (stat(main.output_dir, &st) == 0) {
        if (!S_ISDIR(st.st_mode))
            return job_error(j, "job", NULL, "output_dir", "is not a folder");
        TRY(ckpt_find(main.output_dir, a, dir));
    }
    if (conf.resume == RESUME_MUST && !*dir)
        return job_error(j, "checkpoint", NULL, "resume", "%s holds no complete checkpoint",
                         main.output_dir);
    if (conf.resume == RESUME_NEVER && *dir) {
        if (!conf.overwrite)
            return job_error(j, "checkpoint", NULL, "resume",
                             "%s holds checkpoints already: choose another job.output_dir, say "
                             "resume = auto to go on, or overwrite = true to move them to old-N",
                             main.output_dir);
        *dir = NULL;
    }
    return ERR_OK;
}

int output_find(const struct job *j, struct comm *c, struct arena *a, struct ckpt **from)
{
    const char *dir = NULL;
    *from = NULL;
    TRY_ALL(c, c->rank == 0 ? find_locally(j, a, &dir) : ERR_OK);
    return ckpt_open_shared(c, dir, from);
}

static bool belongs_to_run(const char *name)
{
    return strncmp(name, "step-", 5) == 0 || strcmp(name, "latest") == 0 ||
           strcmp(name, "best") == 0 || strcmp(name, "metrics.jsonl") == 0 ||
           strcmp(name, "job.ini") == 0;
}

/* Move an earlier run's files to old-N, N the first that is free. */
static int move_old(const char *dir, struct arena *a)
{
    char *old = NULL;
    int n = 1;
    do
        old = arena_printf(a, "%s/old-%d", dir, n++);
    while (access(old, F_OK) == 0);
    TRY(file_make_dirs(old));
    DIR *d = opendir(dir);
    if (!d)
        FAIL(ERR_RESOURCE, "cannot open folder %s: %s", dir, strerror(errno));
    int rc = ERR_OK;
    for (struct dirent *e; rc == ERR_OK && (e = readdir(d));) {
        if (!belongs_to_run(e->d_name))
            continue;
        const char *from = arena_printf(a, "%s/%s", dir, e->d_name);
        if (rename(from, arena_printf(a, "%s/%s", old, e->d_name)) != 0)
            rc = err_set(ERR_RESOURCE, "cannot move %s to %s: %s", from, old, strerror(errno));
    }
    closedir(d);
    return rc;
}

static int check_room(const struct run *r)
{
    int n;
    const struct ckpt_array *arrays = run_arrays(r, &n, NULL);
    struct statvfs fs;
    const char *dir = r->conf.main.output_dir;
    if (statvfs(dir, &fs) != 0)
        FAIL(ERR_RESOURCE, "cannot look at the file system of %s: %s", dir, strerror(errno));
    int64_t need = ckpt_bytes(arrays, n, (enum ckpt_type)r->conf.ckpt.state_dict_type,
                              r->strategy.group_size),
            there = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
    char x[32], y[32];
    if (there >= need)
        return ERR_OK;
    job_error(r->conf.job, "job", NULL, "output_dir",
              "a checkpoint needs %s, but only %s are free there", text_bytes(x, (double)need),
              text_bytes(y, (double)there));
    return ERR_RESOURCE; /* the words name the key, the status says what ran out */
}

/* Whether path, or as much of it as there is, may be written. */
static bool may_write(const char *path, struct arena *a)
{
    char *p = arena_strdup(a, path), *slash;
    while (access(p, F_OK) != 0 && (slash = strrchr(p, '/')) && slash > p)
        *slash = 0;
    if (access(p, F_OK) != 0)
        return access(*p == '/' ? "/" : ".", W_OK) == 0;
    return access(p, W_OK) == 0;
}

/* Make the folder and write into it.  A disk that is full is one thing, a folder that may not be
 * written another: that one was chosen by the job. */
static int check_folder(const struct run *r)
{
    const char *dir = r->conf.main.output_dir;
    const char *probe = arena_printf(r->arena, "%s/.write-test", dir);
    int rc = file_make_dirs(dir);
    if (rc == ERR_OK) {
        rc = file_write(probe, "x", 1);
        unlink(probe);
    }
    if (rc == ERR_OK)
        return ERR_OK;
    job_error(r->conf.job, "job", NULL, "output_dir", "%s", arena_strdup(r->arena, err_text()));
    return may_write(dir, r->arena) ? rc : ERR_DATA;
}

static int prepare_locally(const struct run *r, const char *job_text)
{
    const char *dir = r->conf.main.output_dir;
    TRY(check_folder(r));
    TRY(check_room(r));
    if (r->conf.ckpt.resume == RESUME_NEVER && r->conf.ckpt.overwrite) {
        const char *old;
        TRY(ckpt_find(dir, r->arena, &old));
        if (old)
            TRY(move_old(dir, r->arena));
    }
    return file_write(arena_printf(r->arena, "%s/job.ini", dir), job_text, strlen(job_text));
}

int output_prepare(const struct run *r, const char *job_text, const char **run_id)
{
    TRY_ALL(r->comm, r->comm->rank == 0 ? prepare_locally(r, job_text) : ERR_OK);
    uint64_t id = 0;
    if (r->comm->rank == 0 && getrandom(&id, sizeof id, 0) != sizeof id)
        id = (uint64_t)getpid();
    r->comm->ops->broadcast(r->comm, &id, sizeof id, 0);
    *run_id =
        r->from ? r->resume.run_id : arena_printf(r->arena, "%016llx", (unsigned long long)id);
    return ERR_OK;
}

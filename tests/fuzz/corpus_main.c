// SPDX-License-Identifier: Apache-2.0
// Stands in for libFuzzer: feeds every file of the folder given as argument to a fuzz target once. A folder that is
// missing or empty is a failure: a test that runs nothing must not pass.
#include <dirent.h>
#include <stdint.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *folder, const char *name) {
    char path[4096];
    struct stat status;
    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path)) return -1;
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    uint8_t *data = NULL;
    int result = -1;
    if (fstat(fileno(file), &status) == 0 && S_ISREG(status.st_mode)) {
        // Exactly as large as the input, so that the sanitizers see the first byte read behind it.
        size_t size = (size_t)status.st_size;
        data = malloc(size ? size : 1);
        if (data && fread(data, 1, size, file) == size) {
            LLVMFuzzerTestOneInput(data, size);
            result = 0;
        }
    }
    free(data);
    fclose(file);
    return result;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    DIR *folder = opendir(argv[1]);
    if (!folder) {
        fprintf(stderr, "%s: cannot open the folder of inputs\n", argv[1]);
        return 2;
    }
    int count = 0, failed = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.') continue;
        if (run_file(argv[1], entry->d_name) == 0)
            count++;
        else
            failed++;
        if (failed) fprintf(stderr, "%s/%s: cannot be read\n", argv[1], entry->d_name);
    }
    closedir(folder);
    printf("%d inputs\n", count);
    if (count == 0) fprintf(stderr, "%s: no inputs\n", argv[1]);
    return count == 0 || failed ? 1 : 0;
}

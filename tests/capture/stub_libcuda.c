/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for libcuda where there is no driver. Compiled against NVIDIA's own cuda.h, so that the
 * compiler holds every signature and structure; what the calls were given is kept in a log.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int version = 13010;
static char log_text[1 << 16];
static int fail_code;
static char fail_name[64];
static CUgraphEdgeData edge_data[3] = {{0, 0, 0, {0}}, {1, 0, 1, {0}}, {0, 0, 0, {0}}};
static CUgraphNode handles[3] = {(CUgraphNode)0x1110, (CUgraphNode)0x2220, (CUgraphNode)0x3330};
static CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
static unsigned char device_memory[4096];

void stub_version(int wanted) { version = wanted; }
void stub_clear(void) { log_text[0] = 0; fail_name[0] = 0; }
const char *stub_log(void) { return log_text; }
void stub_fail(const char *name, int code)
{
    snprintf(fail_name, sizeof fail_name, "%s", name);
    fail_code = code;
}

static CUresult note(const char *name, const char *format, ...)
{
    size_t at = strlen(log_text);
    at += (size_t)snprintf(log_text + at, sizeof log_text - at, "%s(", name);
    va_list list;
    va_start(list, format);
    at += (size_t)vsnprintf(log_text + at, sizeof log_text - at, format, list);
    va_end(list);
    snprintf(log_text + at, sizeof log_text - at, ")\n");
    return strcmp(name, fail_name) ? CUDA_SUCCESS : (CUresult)fail_code;
}

CUresult CUDAAPI cuDriverGetVersion(int *out) { *out = version; return CUDA_SUCCESS; }

static CUresult CUDAAPI ctx_pop(CUcontext *out) { *out = (CUcontext)0xc0; return note("cuCtxPopCurrent", ""); }
static CUresult CUDAAPI ctx_push(CUcontext c) { return note("cuCtxPushCurrent", "%p", (void *)c); }
static CUresult CUDAAPI device_get(CUdevice *out, int n) { *out = n + 40; return note("cuDeviceGet", "%d", n); }
static CUresult CUDAAPI attribute(int *out, CUdevice_attribute a, CUdevice d)
{
    *out = a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9
         : a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 1
         : a == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 132
         : a == CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE ? 52428800
         : a == CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED ? 1 : -1;
    return note("cuDeviceGetAttribute", "%d, %d", (int)a, d);
}
static CUresult CUDAAPI uuid_of(CUuuid *out, CUdevice d)
{
    for (int i = 0; i < 16; i++) out->bytes[i] = (char)i;
    return note("cuDeviceGetUuid", "%d", d);
}
static CUresult CUDAAPI retain(CUcontext *out, CUdevice d) { *out = (CUcontext)0xc0; return note("cuDevicePrimaryCtxRetain", "%d", d); }
static CUresult CUDAAPI func_name(const char **out, CUfunction f)
{
    *out = "_Z4gemmv";
    note("cuFuncGetName", "%p", (void *)f);
    return (void *)f == (void *)0xf1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
static CUresult CUDAAPI kernel_name(const char **out, CUkernel f) { *out = "_Z6kernelv"; return note("cuKernelGetName", "%p", (void *)f); }
static CUresult CUDAAPI func_load(CUfunction f) { return note("cuFuncLoad", "%p", (void *)f); }
static CUresult CUDAAPI add_edges(CUgraph g, const CUgraphNode *a, const CUgraphNode *b, size_t n)
{
    return note("cuGraphAddDependencies", "%p, %p>%p, %p>%p, %zu", (void *)g, (void *)a[0], (void *)b[0],
                (void *)a[n - 1], (void *)b[n - 1], n);
}
static CUresult add_kernel(const char *kind, CUgraphNode *out, CUgraph g, const CUgraphNode *d, size_t n,
                           CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                           unsigned bz, unsigned shared, void **params, void **extra)
{
    *out = (CUgraphNode)0x4440;
    return note("cuGraphAddKernelNode", "%s, %p, %p, %zu, %p, %u %u %u, %u %u %u, %u, %llx %x, %p", kind,
                (void *)g, n ? (void *)d[n - 1] : 0, n, (void *)f, gx, gy, gz, bx, by, bz, shared,
                params ? *(unsigned long long *)params[0] : 0ull, params ? *(unsigned *)params[1] : 0u,
                (void *)extra);
}
static CUresult CUDAAPI add_kernel_v1(CUgraphNode *out, CUgraph g, const CUgraphNode *d, size_t n, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
    return add_kernel("v1", out, g, d, n, p->func, p->gridDimX, p->gridDimY, p->gridDimZ, p->blockDimX,
                      p->blockDimY, p->blockDimZ, p->sharedMemBytes, p->kernelParams, p->extra);
}
static CUresult CUDAAPI add_kernel_v2(CUgraphNode *out, CUgraph g, const CUgraphNode *d, size_t n, const CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
    if (p->kern || p->ctx) return CUDA_ERROR_INVALID_VALUE;
    return add_kernel("v2", out, g, d, n, p->func, p->gridDimX, p->gridDimY, p->gridDimZ, p->blockDimX,
                      p->blockDimY, p->blockDimZ, p->sharedMemBytes, p->kernelParams, p->extra);
}
static CUresult CUDAAPI clone(CUgraph *out, CUgraph g) { *out = (CUgraph)0x71; return note("cuGraphClone", "%p", (void *)g); }
static CUresult CUDAAPI destroy(CUgraph g) { return note("cuGraphDestroy", "%p", (void *)g); }
static CUresult CUDAAPI destroy_exec(CUgraphExec e) { return note("cuGraphExecDestroy", "%p", (void *)e); }
static CUresult CUDAAPI exec_id(CUgraphExec e, unsigned int *out) { *out = 77; return note("cuGraphExecGetId", "%p", (void *)e); }
static CUresult edges(CUgraphNode *a, CUgraphNode *b, CUgraphEdgeData *data, size_t *n, int old)
{
    if (!a) { *n = 2; return note("cuGraphGetEdges", "count"); }
    if (*n < 2) return CUDA_ERROR_INVALID_VALUE;
    if (!data && !old) return CUDA_ERROR_LOSSY_QUERY;
    for (int i = 0; i < 2; i++) {
        a[i] = handles[i];
        b[i] = handles[i + 1];
        if (data) data[i] = edge_data[i];
    }
    *n = 2;
    return note("cuGraphGetEdges", old ? "v1" : "v2");
}
static CUresult CUDAAPI edges_v1(CUgraph g, CUgraphNode *a, CUgraphNode *b, size_t *n) { (void)g; return edges(a, b, 0, n, 1); }
static CUresult CUDAAPI edges_v2(CUgraph g, CUgraphNode *a, CUgraphNode *b, CUgraphEdgeData *d, size_t *n) { (void)g; return edges(a, b, d, n, 0); }
static CUresult CUDAAPI nodes(CUgraph g, CUgraphNode *out, size_t *n)
{
    if (out) memcpy(out, handles, sizeof handles);
    *n = 3;
    return note("cuGraphGetNodes", "%p", (void *)g);
}
static CUresult CUDAAPI instantiate(CUgraphExec *out, CUgraph g, unsigned long long flags) { *out = (CUgraphExec)0xe1; return note("cuGraphInstantiateWithFlags", "%p, %llu", (void *)g, flags); }
static void shape(unsigned *p) { for (unsigned i = 0; i < 7; i++) p[i] = i + 1; }
static CUresult CUDAAPI params_v1(CUgraphNode n, CUDA_KERNEL_NODE_PARAMS_v1 *p) { memset(p, 0, sizeof *p); p->func = (CUfunction)0xf1; shape(&p->gridDimX); return note("cuGraphKernelNodeGetParams", "v1, %p", (void *)n); }
static CUresult CUDAAPI params_v2(CUgraphNode n, CUDA_KERNEL_NODE_PARAMS_v2 *p) { memset(p, 0, sizeof *p); p->kern = (CUkernel)0xf2; shape(&p->gridDimX); return note("cuGraphKernelNodeGetParams", "v2, %p", (void *)n); }
static CUresult CUDAAPI set_attribute(CUgraphNode n, CUkernelNodeAttrID a, const CUkernelNodeAttrValue *v) { return note("cuGraphKernelNodeSetAttribute", "%p, %d, %d", (void *)n, a == CU_KERNEL_NODE_ATTRIBUTE_PRIORITY, v->priority); }
static CUresult CUDAAPI launch_graph(CUgraphExec e, CUstream s) { return note("cuGraphLaunch", "%p, %p", (void *)e, (void *)s); }
static CUresult CUDAAPI tools_id(CUgraphNode n, unsigned long long *out) { *out = (5ull << 32) | 6; return note("cuGraphNodeGetToolsId", "%p", (void *)n); }
static CUresult CUDAAPI node_type(CUgraphNode n, CUgraphNodeType *out) { *out = n == handles[1] ? CU_GRAPH_NODE_TYPE_MEMCPY : CU_GRAPH_NODE_TYPE_KERNEL; return note("cuGraphNodeGetType", "%p", (void *)n); }
static CUresult CUDAAPI launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned sh, CUstream s, void **p, void **x)
{
    return note("cuLaunchKernel", "%p, %u %u %u, %u %u %u, %u, %p, %llx %x, %p", (void *)f, gx, gy, gz, bx, by, bz, sh,
                (void *)s, *(unsigned long long *)p[0], *(unsigned *)p[1], (void *)x);
}
static CUresult CUDAAPI mem_alloc(CUdeviceptr *out, size_t n) { *out = 0xd00d0000ull; return note("cuMemAlloc", "%zu", n); }
static CUresult CUDAAPI host_alloc(void **out, size_t n, unsigned f) { *out = device_memory; return note("cuMemHostAlloc", "%zu, %u", n, f); }
static CUresult CUDAAPI device_pointer(CUdeviceptr *out, void *p, unsigned f) { *out = (CUdeviceptr)p + 0x10000000000ull; return note("cuMemHostGetDevicePointer", "%u", f); }
static CUresult CUDAAPI host_register(void *p, size_t n, unsigned f) { memset(p, 0xab, n); return note("cuMemHostRegister", "%zu, %u", n, f); }
static CUresult CUDAAPI memset_async(CUdeviceptr p, unsigned char c, size_t n, CUstream s) { return note("cuMemsetD8Async", "%llx, %u, %zu, %p", (unsigned long long)p, c, n, (void *)s); }
static CUresult CUDAAPI get_function(CUfunction *out, CUmodule m, const char *name) { *out = (CUfunction)0xf1; return note("cuModuleGetFunction", "%p, %s", (void *)m, name); }
static CUresult CUDAAPI load_data(CUmodule *out, const void *image) { *out = (CUmodule)0x30d; return note("cuModuleLoadData", "%.12s", (const char *)image); }
static CUresult CUDAAPI stream_create(CUstream *out, unsigned f) { *out = (CUstream)0x57; return note("cuStreamCreate", "%u", f); }
static CUresult capture(CUstream s, CUstreamCaptureStatus *st, cuuint64_t *id, CUgraph *g, const CUgraphNode **d, const CUgraphEdgeData **e, size_t *n, const char *which)
{
    *st = s == (CUstream)0x57 ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    *id = 12;
    *g = (CUgraph)0x70;
    *d = handles;
    if (e) *e = edge_data;
    *n = 2;
    return note("cuStreamGetCaptureInfo", "%s, %p", which, (void *)s);
}
static CUresult CUDAAPI capture_v2(CUstream s, CUstreamCaptureStatus *st, cuuint64_t *id, CUgraph *g, const CUgraphNode **d, size_t *n) { return capture(s, st, id, g, d, 0, n, "v2"); }
static CUresult CUDAAPI capture_v3(CUstream s, CUstreamCaptureStatus *st, cuuint64_t *id, CUgraph *g, const CUgraphNode **d, const CUgraphEdgeData **e, size_t *n) { return capture(s, st, id, g, d, e, n, "v3"); }
static CUresult CUDAAPI synchronize(CUstream s) { return note("cuStreamSynchronize", "%p", (void *)s); }
static CUresult CUDAAPI exchange(CUstreamCaptureMode *m)
{
    CUstreamCaptureMode before = mode;
    mode = *m;
    *m = before;
    return note("cuThreadExchangeStreamCaptureMode", "%d", (int)mode);
}

static const struct { const char *name; int since; void *function; } table[] = {
    {"cuCtxPopCurrent", 4000, ctx_pop}, {"cuCtxPushCurrent", 4000, ctx_push},
    {"cuDeviceGet", 2000, device_get}, {"cuDeviceGetAttribute", 2000, attribute},
    {"cuDeviceGetUuid", 11040, uuid_of}, {"cuDevicePrimaryCtxRetain", 7000, retain},
    {"cuFuncGetName", 12030, func_name}, {"cuKernelGetName", 12030, kernel_name},
    {"cuFuncLoad", 12040, func_load}, {"cuGraphAddDependencies", 10000, add_edges},
    {"cuGraphAddKernelNode", 12000, add_kernel_v2}, {"cuGraphAddKernelNode", 10000, add_kernel_v1},
    {"cuGraphClone", 10000, clone}, {"cuGraphDestroy", 10000, destroy},
    {"cuGraphExecDestroy", 10000, destroy_exec}, {"cuGraphExecGetId", 13010, exec_id},
    {"cuGraphGetEdges", 12030, edges_v2}, {"cuGraphGetEdges", 10000, edges_v1},
    {"cuGraphGetNodes", 10000, nodes}, {"cuGraphInstantiateWithFlags", 11040, instantiate},
    {"cuGraphKernelNodeGetParams", 12000, params_v2}, {"cuGraphKernelNodeGetParams", 10000, params_v1},
    {"cuGraphKernelNodeSetAttribute", 11000, set_attribute}, {"cuGraphLaunch", 10000, launch_graph},
    {"cuGraphNodeGetToolsId", 13010, tools_id}, {"cuGraphNodeGetType", 10000, node_type},
    {"cuLaunchKernel", 4000, launch}, {"cuMemAlloc", 3020, mem_alloc}, {"cuMemHostAlloc", 2020, host_alloc},
    {"cuMemHostGetDevicePointer", 3020, device_pointer}, {"cuMemHostRegister", 6050, host_register},
    {"cuMemsetD8Async", 3020, memset_async}, {"cuModuleGetFunction", 2000, get_function},
    {"cuModuleLoadData", 2000, load_data}, {"cuStreamCreate", 2000, stream_create},
    {"cuStreamGetCaptureInfo", 12030, capture_v3}, {"cuStreamGetCaptureInfo", 11030, capture_v2},
    {"cuStreamSynchronize", 2000, synchronize}, {"cuThreadExchangeStreamCaptureMode", 10010, exchange},
};

#undef cuGetProcAddress
/* Asked for more than it has, a driver gives what it has and says success. */
CUresult CUDAAPI cuGetProcAddress_v2(const char *name, void **out, int wanted, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    (void)flags;
    *out = 0;
    for (size_t i = 0; i < sizeof table / sizeof *table && !*out; i++)
        if (!strcmp(table[i].name, name) && table[i].since <= wanted && table[i].since <= version)
            *out = table[i].function;
    if (status) *status = *out ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

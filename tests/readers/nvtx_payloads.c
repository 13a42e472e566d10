// SPDX-License-Identifier: Apache-2.0
// Opens ranges and marks with every kind of payload, in two domains with named categories.
#include <stdint.h>
#include <unistd.h>

#include <nvtx3/nvToolsExt.h>

#define EMIT(text, number, type, member, value)                        \
    do {                                                               \
        nvtxEventAttributes_t a = {0};                                 \
        a.version = NVTX_VERSION;                                      \
        a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;                        \
        a.category = (number);                                         \
        a.messageType = NVTX_MESSAGE_TYPE_ASCII;                       \
        a.message.ascii = (text);                                      \
        a.payloadType = (type);                                        \
        a.payload.member = (value);                                    \
        nvtxDomainRangePushEx(domain, &a);                             \
        usleep(100);                                                   \
        nvtxDomainRangePop(domain);                                    \
        nvtxRangeId_t id = nvtxDomainRangeStartEx(domain, &a);         \
        usleep(100);                                                   \
        nvtxDomainRangeEnd(domain, id);                                \
        nvtxDomainMarkEx(domain, &a);                                  \
    } while (0)

static void all(nvtxDomainHandle_t domain)
{
    EMIT("none", 0, NVTX_PAYLOAD_UNKNOWN, llValue, 0);
    EMIT("u64", 3, NVTX_PAYLOAD_TYPE_UNSIGNED_INT64, ullValue, 5);
    EMIT("u64 max", 9, NVTX_PAYLOAD_TYPE_UNSIGNED_INT64, ullValue, UINT64_MAX);
    EMIT("i64", 7, NVTX_PAYLOAD_TYPE_INT64, llValue, -5);
    EMIT("double", 3, NVTX_PAYLOAD_TYPE_DOUBLE, dValue, 1.5);
    EMIT("whole", 3, NVTX_PAYLOAD_TYPE_DOUBLE, dValue, 2.0);
    EMIT("u32 max", UINT32_MAX, NVTX_PAYLOAD_TYPE_UNSIGNED_INT32, uiValue, UINT32_MAX);
    EMIT("i32", 3, NVTX_PAYLOAD_TYPE_INT32, iValue, -1);
    EMIT("float", 3, NVTX_PAYLOAD_TYPE_FLOAT, fValue, 0.1f);
    EMIT("inf", 3, NVTX_PAYLOAD_TYPE_DOUBLE, dValue, 1.0 / 0.0);
}

int main(void)
{
    nvtxDomainHandle_t domain = nvtxDomainCreateA("dom");
    nvtxNameCategoryA(3, "default three");
    nvtxDomainNameCategoryA(domain, 3, "dom three");
    nvtxDomainNameCategoryA(domain, 7, "first");
    nvtxDomainNameCategoryA(domain, 7, "renamed");
    all(NULL);
    all(domain);
    return 0;
}

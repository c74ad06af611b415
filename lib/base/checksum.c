/* checksum.c - CRC-32: finds every single flipped bit, and every burst of up to 32 */
#include <zlib.h>

#include "base/base.h"

uint32_t checksum(uint32_t crc, const void *bytes, size_t length)
{
    return length > 0 ? (uint32_t)crc32_z(crc, bytes, length) : crc;
}

uint32_t checksum_join(uint32_t first, uint32_t second, size_t length)
{
    return (uint32_t)crc32_combine(first, second, (z_off_t)length);
}

"""CRC-32C by its definition: division by the polynomial 0x1EDC6F41, one bit at a time, with reversed bits."""


def crc32c_bitwise(data: bytes) -> int:
    """The checksum, computed slowly."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF

# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the part of SGLang that a HiCache storage backend sees."""

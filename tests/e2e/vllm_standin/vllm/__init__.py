# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the part of vLLM that a KV connector sees, so that its shim is tested where vLLM is not installed."""

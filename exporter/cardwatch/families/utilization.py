# SPDX-License-Identifier: Apache-2.0
"""How busy the parts of a card were.

All are ratios from 0 to 1. The utilization families say for which share of a short window a unit
had any work at all, not how much of the unit worked; they are absent while MIG is on.
"""

from __future__ import annotations

from cardwatch.families import ranges
from cardwatch.families.record import Family, Profile, Type


def _busy(name: str, help_text: str, source: str, profile: Profile = Profile.STANDARD) -> Family:
    """Return a family of the driver's own "had any work" ratios."""
    return Family(
        name,
        Type.GAUGE,
        help_text,
        unit="ratio",
        profile=profile,
        accept=ranges.RATIO,
        sources={"nvml": source},
    )


def _active(
    name: str, help_text: str, dcgm: str, gpm: str, profile: Profile = Profile.STANDARD
) -> Family:
    """Return a family of the profiling counters, which DCGM or GPM reads."""
    return Family(
        name,
        Type.GAUGE,
        help_text,
        unit="ratio",
        profile=profile,
        accept=ranges.RATIO,
        planned="dcgm",
        sources={
            "dcgm": f"field {dcgm}",
            "nvml": f"nvmlGpmMetricsGet, metric {gpm}",
        },
    )


FAMILIES: tuple[Family, ...] = (
    _busy(
        "gpu_utilization_ratio",
        "Share of the driver's last sampling window (1/6 to 1 s) in which at least one kernel ran; "
        "not how much of the card it used.",
        "nvmlDeviceGetUtilizationRates (gpu)",
        Profile.CORE,
    ),
    _busy(
        "gpu_memory_controller_utilization_ratio",
        "Share of the driver's last sampling window (1/6 to 1 s) in which device memory was read "
        "or written; neither bandwidth nor memory in use.",
        "nvmlDeviceGetUtilizationRates (memory)",
    ),
    _busy(
        "gpu_encoder_utilization_ratio",
        "Share of the driver's sampling window in which the video encoder was busy.",
        "nvmlDeviceGetEncoderUtilization",
    ),
    _busy(
        "gpu_decoder_utilization_ratio",
        "Share of the driver's sampling window in which the video decoder was busy.",
        "nvmlDeviceGetDecoderUtilization",
    ),
    _active(
        "gpu_sm_active_ratio",
        "Average share of multiprocessors with work resident, over the sample interval. Work that "
        "waits for memory counts too.",
        "1002 (DCGM_FI_PROF_SM_ACTIVE)",
        "2 (NVML_GPM_METRIC_SM_UTIL)",
    ),
    _active(
        "gpu_sm_occupancy_ratio",
        "Resident warps as a share of those the card could hold, averaged over the sample "
        "interval. Higher is not always faster.",
        "1003 (DCGM_FI_PROF_SM_OCCUPANCY)",
        "3 (NVML_GPM_METRIC_SM_OCCUPANCY)",
    ),
    _active(
        "gpu_tensor_active_ratio",
        "Share of cycles in which the tensor cores worked, averaged over all of them and the "
        "sample interval.",
        "1004 (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE)",
        "5 (NVML_GPM_METRIC_ANY_TENSOR_UTIL)",
    ),
    _active(
        "gpu_dram_active_ratio",
        "Share of cycles in which device memory moved data, over the sample interval; about 0.8 "
        "is a full bus in practice.",
        "1005 (DCGM_FI_PROF_DRAM_ACTIVE)",
        "10 (NVML_GPM_METRIC_DRAM_BW_UTIL)",
    ),
    _busy(
        "gpu_jpeg_utilization_ratio",
        "Share of the driver's sampling window in which the JPEG engine was busy.",
        "nvmlDeviceGetJpgUtilization",
        Profile.FULL,
    ),
    _busy(
        "gpu_ofa_utilization_ratio",
        "Share of the driver's sampling window in which the optical flow accelerator was busy.",
        "nvmlDeviceGetOfaUtilization",
        Profile.FULL,
    ),
    _active(
        "gpu_graphics_engine_active_ratio",
        "Share of the sample interval in which the graphics and compute engine had work bound to "
        "it.",
        "1001 (DCGM_FI_PROF_GR_ENGINE_ACTIVE)",
        "1 (NVML_GPM_METRIC_GRAPHICS_UTIL)",
        Profile.FULL,
    ),
    _active(
        "gpu_fp64_active_ratio",
        "Share of cycles in which the double-precision units worked, averaged over all of them "
        "and the sample interval.",
        "1006 (DCGM_FI_PROF_PIPE_FP64_ACTIVE)",
        "11 (NVML_GPM_METRIC_FP64_UTIL)",
        Profile.FULL,
    ),
    _active(
        "gpu_fp32_active_ratio",
        "Share of cycles in which the single-precision units worked, averaged over all of them "
        "and the sample interval.",
        "1007 (DCGM_FI_PROF_PIPE_FP32_ACTIVE)",
        "12 (NVML_GPM_METRIC_FP32_UTIL)",
        Profile.FULL,
    ),
    _active(
        "gpu_fp16_active_ratio",
        "Share of cycles in which the half-precision units worked, averaged over all of them and "
        "the sample interval; tensor cores not included.",
        "1008 (DCGM_FI_PROF_PIPE_FP16_ACTIVE)",
        "13 (NVML_GPM_METRIC_FP16_UTIL)",
        Profile.FULL,
    ),
)

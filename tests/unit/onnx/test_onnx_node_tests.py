"""The node tests that onnx itself ships, through `benchmarks/onnx_node_tests.py`: all of them in the long run, a fixed
sample in the normal one.

Not expected to pass, by the reference executor: 6 of Bernoulli (random results) and `if_opt` (its expected output has
the wrong shape: the branch is given [1, 5]). On torch, 3 of attention in float16 differ in the last bit.
"""

import runpy
from pathlib import Path

import pytest

BENCHMARK = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "onnx_node_tests.py"))
BY_TEXT, REFERENCE, TORCH = BENCHMARK["BY_TEXT"], BENCHMARK["REFERENCE"], BENCHMARK["TORCH"]

# One or more of most families of operators, none that draws at random.
SAMPLE = (
    "test_abs test_add_bcast test_affine_grid_2d_expanded test_and4d test_argmax_no_keepdims_random "
    "test_attention_3d_gqa test_attention_4d_causal test_averagepool_2d_same_upper test_basic_conv_with_padding "
    "test_batchnorm_example test_bitshift_left_uint8 test_cast_FLOAT_to_BFLOAT16 test_cast_FLOAT_to_FLOAT8E4M3FN "
    "test_cast_FLOAT_to_INT4 test_cast_UINT4_to_FLOAT test_center_crop_pad_pad test_clip_default_int8_min "
    "test_compress_0 test_concat_3d_axis_2 test_constant test_constant_pad test_constantofshape_int_zeros "
    "test_convtranspose_pads test_cumsum_2d_axis_0 test_deform_conv_with_mask_bias "
    "test_depthtospace_crd_mode_example test_dequantizelinear_int4 test_dft test_einsum_batch_diagonal test_elu "
    "test_expand_dim_changed test_eyelike_with_dtype test_gather_elements_0 test_gathernd_example_int32_batch_dim1 "
    "test_gelu_tanh_1 test_gemm_all_attributes test_group_normalization_example test_gru_defaults "
    "test_hannwindow_expanded test_identity_opt test_identity_sequence test_if test_if_seq "
    "test_image_decoder_decode_png_rgb test_isinf_float16 test_layer_normalization_3d_axis1_epsilon "
    "test_linear_attention_gated_expanded test_loop11 test_loop13_seq test_loop16_seq_none test_lppool_2d_pads "
    "test_lstm_with_peepholes test_matmulinteger test_max_int8 test_maxpool_2d_ceil "
    "test_maxunpool_export_with_output_shape test_mod_mixed_sign_float16 test_momentum test_mvn "
    "test_nllloss_NCd1d2d3_none_no_weight_negative_ii test_nonzero_example test_onehot_with_axis "
    "test_optional_get_element_sequence test_pow_types_float32_int32 test_qlinearconv test_quantizelinear_e4m3fn "
    "test_range_float_type_positive_delta_expanded test_reduce_log_sum_exp_default_axes_keepdims_random "
    "test_reduce_sum_empty_set test_regex_full_match_basic test_reshape_allowzero_reordered "
    "test_resize_upsample_sizes_nearest test_reversesequence_time test_rnn_seq_length test_roialign_aligned_true "
    "test_rotary_embedding_interleaved test_scan9_sum test_scan9_multi_state test_scan_sum test_scatternd_max "
    "test_sce_mean_weight test_sequence_insert_at_back test_sequence_map_add_1_sequence_1_tensor_expanded "
    "test_sequence_map_extract_shapes test_shape_clip_end test_slice_neg_steps test_softmax_axis_1_expanded "
    "test_split_to_sequence_2 test_stft_with_window test_string_concat test_string_split_basic "
    "test_tensorscatter_circular test_top_k_smallest test_training_dropout_zero_ratio_mask test_tril_neg "
    "test_unique_sorted_with_axis_3d test_upsample_nearest test_where_long_example test_xor_bcast4v4d"
).split()


def test_a_sample_of_the_node_tests_gives_what_onnx_expects() -> None:
    names = frozenset(SAMPLE)
    count, passed, failures = BENCHMARK["measure"](names.__contains__)
    assert not failures
    assert count == len(SAMPLE)
    assert passed[BY_TEXT] == passed[REFERENCE] == passed[TORCH] == count


@pytest.mark.long
def test_all_node_tests_of_onnx() -> None:
    count, passed, _ = BENCHMARK["measure"]()
    assert count == 1884
    assert passed[BY_TEXT] >= 1884
    assert passed[REFERENCE] >= 1877
    assert passed[TORCH] >= 1874

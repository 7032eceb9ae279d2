"""A call in the words of each family, by the name of its parser."""

PARIS = {"city": "Paris"}
JSON = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
BAR, LOW = "\N{FULLWIDTH VERTICAL LINE}", "\N{LOWER ONE EIGHTH BLOCK}"
M3 = "]<]minimax[>["
DSML = f"{BAR}DSML{BAR}"


def deepseek(words: str) -> str:
    """A token of DeepSeek."""
    return f"<{BAR}{words.replace(' ', LOW)}{BAR}>"


CALLS = {
    "hermes": f"<tool_call>\n{JSON}\n</tool_call>",
    "qwen25": f"<tool_call>\n{JSON}\n</tool_call>",
    "longcat": f"<longcat_tool_call>{JSON}</longcat_tool_call>",
    "jamba": f"<tool_calls>[{JSON}]</tool_calls>",
    "internlm": f"<|action_start|><|plugin|>{JSON}<|action_end|>",
    "apertus": '<|tools_prefix|>[{"get_weather": {"city": "Paris"}}]<|tools_suffix|>',
    "cohere_command3": '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": '
    '"get_weather", "parameters": {"city": "Paris"}}]<|END_ACTION|>',
    "granite": f"<|tool_call|>[{JSON}]",
    "granite-20b-fc": f"<function_call> {JSON}",
    "phi4_mini_json": f"functools[{JSON}]",
    "gigachat3": f"function call<|role_sep|>\n{JSON}",
    "qwen3_coder": "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n"
    "</parameter>\n</function>\n</tool_call>",
    "nanbeige": "<tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>"
    "</function>\n</tool_call>",
    "seed_oss": "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris"
    "</parameter>\n</function>\n</seed:tool_call>",
    "minimax_m2": '<minimax:tool_call>\n<invoke name="get_weather">\n'
    '<parameter name="city">Paris</parameter>\n</invoke>\n</minimax:tool_call>',
    "dots": '<dots_function_call>\n<invoke name="get_weather">\n'
    '<parameter name="city">Paris</parameter>\n</invoke>\n</dots_function_call>',
    "hy_v3": "<tool_calls>\n<tool_call>get_weather<tool_sep>\n<arg_key>city</arg_key>\n"
    "<arg_value>Paris</arg_value>\n</tool_call>\n</tool_calls>",
    "glm45": "<tool_call>get_weather\n<arg_key>city</arg_key>\n"
    "<arg_value>Paris</arg_value>\n</tool_call>",
    "glm47": "<tool_call>get_weather<arg_key>city</arg_key>"
    "<arg_value>Paris</arg_value></tool_call>",
    "deepseek_v3": deepseek("tool calls begin")
    + deepseek("tool call begin")
    + "function"
    + deepseek("tool sep")
    + 'get_weather\n```json\n{"city": "Paris"}\n```'
    + deepseek("tool call end")
    + deepseek("tool calls end"),
    "deepseek_v31": deepseek("tool calls begin")
    + deepseek("tool call begin")
    + "get_weather"
    + deepseek("tool sep")
    + '{"city": "Paris"}'
    + deepseek("tool call end")
    + deepseek("tool calls end"),
    "deepseek_v32": f'<{DSML}function_calls>\n<{DSML}invoke name="get_weather">\n'
    f'<{DSML}parameter name="city" string="true">Paris</{DSML}parameter>\n'
    f"</{DSML}invoke>\n</{DSML}function_calls>",
    "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
    '<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|>'
    "<|tool_calls_section_end|>",
    "kimi_k3": '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|>'
    '<|open|>argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|>'
    "<|close|>call<|sep|><|close|>tools<|sep|>",
    "llama3_json": '{"name": "get_weather", "parameters": {"city": "Paris"}}',
    "llama4_json": f"<|python_tag|>{JSON}",
    "pythonic": '[get_weather(city="Paris")]',
    "llama4_pythonic": '<|python_start|>[get_weather(city="Paris")]<|python_end|>',
    "lfm2": '<|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>',
    "olmo3": '<function_calls>get_weather(city="Paris")</function_calls>',
    "mistral": '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}',
    "gemma4": '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>',
    "functiongemma": "<start_function_call>call:get_weather{city:<escape>Paris"
    "<escape>}<end_function_call>",
    "gigachat35": f"<{BAR}GCML{BAR}tool_calls>\n<{BAR}GCML{BAR}invoke "
    f'name="get_weather">\n<{BAR}GCML{BAR}parameter name="city" string="true">Paris'
    f"</{BAR}GCML{BAR}parameter>\n</{BAR}GCML{BAR}invoke>\n"
    f"</{BAR}GCML{BAR}tool_calls>",
    "iquest_q1": "<iquest_tool_call>get_weather<arg_key>city</arg_key>"
    "<arg_value>Paris</arg_value></iquest_tool_call>",
    "hy_v4": "<tool_calls>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n"
    "<arg_value>Paris</arg_value>\n</tool_call>\n</tool_calls>",
    "k2_horizon": "<ifm|tool_calls>\n<ifm|tool_call>get_weather\n"
    "<ifm|arg_key>city</ifm|arg_key><ifm|arg_type>string</ifm|arg_type>"
    "<ifm|arg_value>Paris</ifm|arg_value></ifm|tool_call>\n</ifm|tool_calls>",
    "minicpm5": '<function name="get_weather"><param name="city">'
    "<![CDATA[Paris]]></param></function>",
    "minimax_m3": f'{M3}<tool_call>\n{M3}<invoke name="get_weather">\n'
    f"{M3}<city>Paris{M3}</city>\n{M3}</invoke>\n{M3}</tool_call>",
    "plamo3": "".join(
        f"<|plamo:{words}:plamo|>{text}"
        for words, text in {
            "begin_tool_requests": "",
            "begin_tool_request": "",
            "begin_tool_name": "get_weather",
            "end_tool_name": "",
            "begin_tool_arguments": "<|plamo:constrain|>json<|plamo:msg|>"
            '{"city": "Paris"}',
            "end_tool_arguments": "",
            "end_tool_request": "",
            "end_tool_requests": "",
        }.items()
    ),
    "step3": f"<{BAR}tool_calls_begin{BAR}>\n<{BAR}tool_call_begin{BAR}>function"
    f'<{BAR}tool_sep{BAR}><steptml:invoke name="get_weather">\n'
    '<steptml:parameter name="city">Paris</steptml:parameter>\n</steptml:invoke>'
    f"<{BAR}tool_call_end{BAR}>\n<{BAR}tool_calls_end{BAR}>",
    "inkling": '<|message_model|>get_weather<|content_invoke_tool_json|>{"name": '
    '"get_weather", "args": {"city": "Paris"}}<|end_message|>',
    "muse_glimmer": " to=get_weather.get_weather<|message|>\n<atem:function_calls>\n"
    '<atem:invoke name="get_weather.get_weather">\n<atem:parameter name="city">Paris'
    "</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eom|>",
    "openai": "<|channel|>commentary to=functions.get_weather <|constrain|>json"
    '<|message|>{"city": "Paris"}<|call|>',
}
